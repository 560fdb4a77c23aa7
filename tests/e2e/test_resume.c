/* Runs that end early, by any means, and go on as if nothing had happened. */
#include "harness.h"

#include "extent.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLED "--steps 8 --save-every 1 "
enum { REPEATS = 20 /* trials of a signal that must not come after the run's end */, USUAL_SEED = 1 };

static uint64_t random_state;

/* Returns a number in [0, 1). */
static double chance(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static void wait_seconds(double s)
{
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

/* Waits until a file matches or the program has ended. */
static void wait_for_file(pid_t pid, const char *pattern)
{
    while (!e2e_ended(pid) && e2e_count(pattern) == 0)
        wait_seconds(2e-4);
}

static int count_steps(const char *text)
{
    int n = 0;
    for (; (text = strstr(text, "\nstep ")); text++)
        n++;
    return n;
}

static void wait_for_steps(pid_t pid, int n)
{
    for (int steps = 0; steps < n && !e2e_ended(pid); wait_seconds(2e-3)) {
        char *text = e2e_read(".stdout", NULL);
        steps = count_steps(text);
        free(text);
    }
}

/* Moment at which a program was killed. */
enum moment { BEFORE, TRAINING, SAVING, SWAPPING, DONE, MOMENTS };
static const char *const moment_names[MOMENTS] = {"before the first step", "training", "saving", "swapping", "done"};

static enum moment moment_of(struct result r)
{
    if (r.status == 0)
        return DONE;
    if (e2e_count("run/checkpoints/*.old") > 0 || e2e_count("run/checkpoints/latest.partial") > 0)
        return SWAPPING;
    if (e2e_count("run/checkpoints/*.partial") > 0)
        return SAVING;
    return count_steps(r.out) > 0 ? TRAINING : BEFORE;
}

/* Kills a quarter of the trials after some steps, one at any time, the others once a save has begun, some of them right at its end. */
static struct result kill_somewhere(pid_t pid, double seconds, int trial)
{
    if (trial % 4 == 0) {
        wait_for_steps(pid, 1 + (int)(chance() * 5));
    } else if (trial % 2 == 0) {
        wait_seconds(chance() * seconds);
    } else {
        char next[64];
        snprintf(next, sizeof next, "run/checkpoints/step-%06d%s", 1 + (int)(chance() * 7), trial % 4 == 1 ? ".partial" : "");
        wait_for_file(pid, next);
        wait_seconds(chance() * 4e-3);
    }
    kill(pid, SIGKILL);
    return e2e_wait(pid);
}

/* Kills runs, goes on with them, and compares them with one that was not disturbed. file: what a run leaves in hf. */
static void killed(const char *arguments, const char *file, int trials)
{
    int at[MOMENTS] = {0}, with_store = 0;
    const char *seed = getenv("LTRAIN_SEED");
    char run[512], left[2][64];
    snprintf(run, sizeof run, "%s --out run", arguments);
    snprintf(left[0], sizeof left[0], "reference/hf/%s", file);
    snprintf(left[1], sizeof left[1], "run/hf/%s", file);
    random_state = seed ? strtoull(seed, NULL, 10) : extent_is_long() ? (uint64_t)time(NULL) : USUAL_SEED;
    print_message("LTRAIN_SEED=%llu\n", (unsigned long long)random_state);
    struct result r = e2e_succeeds(NULL, "%s --out reference", arguments);
    double seconds = r.seconds;
    struct curve reference = e2e_curve("reference");
    assert_int_equal(reference.n, 8);
    for (int trial = 0; trial < trials; trial++) {
        for (int again = 0; again < REPEATS; again++) {
            e2e_remove("run");
            r = kill_somewhere(e2e_start(NULL, run), seconds, trial);
            assert_true(r.status == 128 + SIGKILL || r.status == 0);
            if (trial > 0 || e2e_count("run/*.store") > 0) /* the first is killed among its steps, so that it leaves a store */
                break;
        }
        at[moment_of(r)]++;
        if (trial % 3 == 2 && e2e_exists("run/checkpoints/latest")) /* killed once more, on the way back */
            kill_somewhere(e2e_start(NULL, "--resume run"), seconds, trial + 1);
        with_store += e2e_count("run/*.store");
        if (e2e_count("run/checkpoints/step-??????") > 0) {
            e2e_succeeds(NULL, "--resume run");
        } else {
            if (e2e_exists("run/config.yaml"))
                e2e_refuses(2, "run/checkpoints|has no checkpoint", NULL, "--resume run");
            e2e_remove("run");
            e2e_succeeds(NULL, "%s", run);
        }
        struct curve c = e2e_curve("run");
        assert_int_equal(c.n, 8);
        e2e_same_curve(&reference, &c, 8);
        e2e_same_file(left[0], left[1]);
        assert_int_equal(e2e_count("run/*.store"), 0); /* the dead run's, too */
        assert_int_equal(e2e_count("run/checkpoints/*.partial") + e2e_count("run/checkpoints/*.old"), 0);
        assert_int_equal(e2e_count("run/checkpoints/step-*"), 2); /* --keep */
    }
    for (int m = 0; m < MOMENTS; m++)
        print_message("%s%d %s", m ? ", " : "killed: ", at[m], moment_names[m]);
    print_message("; %d stores left behind by the dead\n", with_store);
    assert_true(with_store > 0);
    if (trials >= 50) /* fewer trials may all miss */
        assert_true(at[SAVING] + at[SWAPPING] > 0);
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    killed(TINY DISCRETE KILLED, "model.safetensors", extent(3, 6, 50));
}

/* Biases that choose experts are moved between steps, by what ranks counted, and saved. */
static void killed_with_experts(void **state)
{
    (void)state;
    e2e_experts_model("glm4-moe", "model");
    killed(IDS DISCRETE KILLED "--model model --dtype bf16 --router-bias-rate 0.125", "model.safetensors", extent(2, 2, 50));
}

/* Adapters of experts lie in stacks of their own, beside a base in MXFP4 that is never saved. */
static void killed_with_adapted_experts(void **state)
{
    (void)state;
    e2e_experts_model("gpt-oss-mxfp4", "model");
    killed(IDS DISCRETE KILLED "--model model --lora r=2", "adapter_model.safetensors", extent(1, 2, 50));
}

/* Terminated runs save the step they are in. */
static void stopped_by(int number)
{
    struct result r;
    for (int again = 0; again == 0 || (e2e_exists("run/hf") && again < REPEATS); again++) { /* not after training's end */
        e2e_remove("run");
        pid_t pid = e2e_start(NULL, TINY DISCRETE "--steps 60 --out run");
        wait_for_steps(pid, 2);
        kill(pid, number);
        r = e2e_wait(pid);
    }
    assert_int_equal(r.status, 128 + number);
    assert_string_equal(r.err, "");
    struct curve c = e2e_curve("run");
    assert_true(c.n >= 2 && c.n < 60);
    assert_int_equal(e2e_count("run/checkpoints/step-*"), 1);
    assert_false(e2e_exists("run/hf"));
    assert_null(strstr(r.out, "\nmodel: "));
    e2e_contains(r.out, "saved: continue with ltrain --resume run");
    assert_int_equal(e2e_count("run/*.store"), 0);
    r = e2e_succeeds(NULL, "--resume run --steps %d", c.n + 2);
    e2e_contains(r.out, "resume: step ");
    e2e_remove("whole");
    e2e_succeeds(NULL, TINY DISCRETE "--steps %d --out whole", c.n + 2);
    struct curve whole = e2e_curve("whole"), resumed = e2e_curve("run");
    assert_int_equal(resumed.n, c.n + 2);
    e2e_same_curve(&whole, &resumed, c.n + 2);
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
}

static void stopped_by_signals(void **state)
{
    (void)state;
    stopped_by(SIGTERM);
    stopped_by(SIGINT);
}

static void resumed_in_another_place(void **state)
{
    static const char *const places[] = {"--offload none --device cpu", "--offload cpu --device cpu:discrete --alpha 0",
                                         "--offload params=nvme,grads=cpu,optim=nvme,acts=cpu --prefetch 2"};
    static const char *const rates[] = {"fp32", "bf16"};
    (void)state;
    for (int d = 0; d < 2; d++) {
        e2e_remove("whole");
        e2e_succeeds(NULL, TINY DISCRETE "--schedule cosine --steps 6 --save-every 2 --keep 9 --dtype %s --out whole", rates[d]);
        struct curve whole = e2e_curve("whole");
        for (int i = 0; i < 3; i++) {
            /* stopped at step 2, of a schedule of 6 */
            e2e_copy("whole", "run");
            e2e_write("run/checkpoints/latest", "step-000002\n");
            e2e_remove("run/checkpoints/step-000004");
            e2e_remove("run/checkpoints/step-000006");
            e2e_remove("run/hf");
            struct result r = e2e_succeeds(NULL, "--resume run %s", places[i]);
            e2e_contains(r.out, "resume: step 2 from run/checkpoints/step-000002");
            struct curve resumed = e2e_curve("run");
            assert_int_equal(resumed.n, 6);
            e2e_same_curve(&whole, &resumed, 6);
            e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
            assert_null(strstr(r.out, "steps are done"));
        }
        struct result again = e2e_succeeds(NULL, "--resume whole");
        e2e_contains(again.out, "resume: all 6 steps are done: --steps N goes on to step N\n");
    }
}

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+e");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = getc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    putc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

/* The model card of a run that went on with other settings lists the former ones; settings of steps that were lost do not count. */
static void card_of_other_settings(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY "--steps 2 --save-every 1 --keep 9 --lr 1e-3 --out run");
    e2e_succeeds(NULL, "--resume run --steps 4 --lr 2e-3 --clip 2");
    char *card = e2e_read("run/hf/README.md", NULL);
    e2e_contains(card, "| learning rate | 0.002, ");
    e2e_contains(card, "| until step 2 | learning_rate 0.001, clip 1.0 |\n");
    free(card);
    e2e_remove("run/checkpoints/step-000003");
    e2e_remove("run/checkpoints/step-000004");
    e2e_succeeds(NULL, "--resume run --steps 4 --lr 1e-3");
    card = e2e_read("run/hf/README.md", NULL);
    e2e_contains(card, "| until step 2 | clip 1.0 |\n");
    free(card);
}

static void wrong_checkpoints(void **state)
{
    (void)state;
    struct result first = e2e_succeeds(NULL, TINY "--steps 4 --save-every 2 --out run");
    e2e_contains(first.out, "checkpoints: every 2 steps, the newest 2 are kept\n");
    e2e_refuses(2, "run already holds a run|--resume run|--out", NULL, TINY "--out run");
    e2e_refuses(2, "run/checkpoints/step-000004|another model|family", NULL, "--resume run --model gpt2-tiny --steps 6");
    e2e_refuses(2, "run/checkpoints/step-000004|freeze", NULL, "--resume run --freeze *mlp* --steps 6");
    e2e_refuses(2, "--resume|absent/config.yaml", NULL, "--resume absent");
    e2e_refuses(2, "--resume: run/checkpoints/step-000002 is a checkpoint: |--resume run, |checkpoints/latest", NULL,
                "--resume run/checkpoints/step-000002 --steps 6");
    e2e_refuses(2, "--resume|--out", NULL, "--resume run --out other");
    struct curve before = e2e_curve("run");
    assert_int_equal(before.n, 4); /* refusals leave the run as it is */
    /* a damaged newest checkpoint: the one before is taken, and reported */
    flip_byte("run/checkpoints/step-000004/optimizer.safetensors", 5000);
    struct result r = e2e_succeeds(NULL, "--resume run --steps 4");
    e2e_contains(r.out, "step-000004/optimizer.safetensors");
    e2e_contains(r.out, "taking step-000002 instead");
    struct curve after = e2e_curve("run");
    e2e_same_curve(&before, &after, 4);
    /* no checkpoint is whole */
    flip_byte("run/checkpoints/step-000004/model.safetensors", 5000);
    e2e_remove("run/checkpoints/step-000002/optimizer.safetensors");
    e2e_refuses(2, "run/checkpoints|no whole checkpoint|step-000004/model.safetensors", NULL, "--resume run --steps 6");
    e2e_remove("run/checkpoints");
    e2e_refuses(2, "run/checkpoints|has no checkpoint|--model run begins a new run", NULL, "--resume run --steps 6");
}

/* A run of 64 tokens has no room for a table of 4096 learned positions (1 MiB in fp32), and needs none. Resumed with longer
 * sequences, it takes in more rows. */
static void positions_follow_the_sequence(void **state)
{
    (void)state;
#define GPT2 "--model gpt2-tiny --data corpus.txt --device cpu:discrete --nvme-max 0" TILES
    e2e_succeeds(NULL, GPT2 "--seq-len 64 --steps 2 --save-every 2 --device-mem 2M --host-mem 3M --out run");
    e2e_refuses(3, "--device-mem", NULL, GPT2 "--seq-len 4k --steps 2 --device-mem 2M --host-mem 3M --out more");
    e2e_succeeds(NULL, "--resume run --seq-len 256 --steps 4 --device-mem 8M --host-mem 8M");
    struct curve all = e2e_curve("run");
    assert_int_equal(all.n, 4);
    e2e_succeeds(NULL, "--resume run --seq-len 64 --steps 6 --device-mem 2M --host-mem 3M");
    e2e_succeeds(NULL, GPT2 "--model run/hf --seq-len 64 --steps 1 --device-mem 2M --host-mem 3M --out again");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(killed_at_random_moments), TEST(killed_with_experts),      TEST(killed_with_adapted_experts),
        TEST(stopped_by_signals),       TEST(resumed_in_another_place), TEST(positions_follow_the_sequence),
        TEST(card_of_other_settings),   TEST(wrong_checkpoints),
    };
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
