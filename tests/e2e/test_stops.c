/* Tests stops in the middle of steps that a slow drive or a long call lengthens: the save begins when the next instruction has
 * finished, and the resumed run equals the run that was not stopped. */
#include "harness.h"

#include "program/drives.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 4, LANES = 9 };
#define FOUR " --steps 4 "

static const char *twin;

/* Slows the drive down; a step reads and writes 4 MB. */
static int slow_drive(void)
{
    setenv("LTRAIN_SLOW_DRIVE", "6e6", 1);
    return e2e_let_root_start_ranks();
}

static int slower_drives(void) /* slows the drives of two ranks, each of which has half of the state */
{
    setenv("LTRAIN_SLOW_DRIVE", "3e6", 1);
    return e2e_let_root_start_ranks();
}

/* Numbers in the line `saving step ...`: instructions finished between the signal and the save. */
struct finished {
    int update, others;
};

static struct finished finished_of(const struct result *r)
{
    struct finished f;
    char name[32];
    int step;
    double seconds;
    const char *line = strstr(r->out, "\nsaving step ");
    if (!line || sscanf(line, "\nsaving step %d, %lg s after %31[^;]; finished before: %d instructions of its update, %d others",
                        &step, &seconds, name, &f.update, &f.others) != 5)
        fail_msg("no line says when the save began:\n%s", r->out);
    assert_string_equal(name, "SIGTERM"); /* also where cli/ranks.c passes it on as SIGUSR1 */
    e2e_contains(r->out, "\nltrain: SIGTERM: stopping now and saving the last update");
    assert_true(seconds >= 0);
    return f;
}

/* Tells whether the signal found the step after `step` (0) or came too late (1). */
static int anywhere(const struct result *r, int step)
{
    if (e2e_curve("run").n > step) /* the step may have been the last one */
        return 1;
    if (r->status != 128 + SIGTERM)
        fail_msg("exits with %d: %s%s", r->status, r->out, r->err);
    assert_string_equal(r->err, "");
    e2e_contains(r->out, "saved: continue with ltrain --resume run");
    assert_int_equal(e2e_curve("run").n, step);
    return 0;
}

/* Tells whether the signal came before the update had ended, or even before it began. */
static int in_update(const struct result *r, int step)
{
    return anywhere(r, step) || finished_of(r).update == 0;
}

/* Tells whether the signal came after the update's begin. */
static int in_passes(const struct result *r, int step)
{
    int later = anywhere(r, step);
    return later ? later : strstr(r->out, " is thrown away, ") ? 0 : -1;
}

static struct finished stop(const struct launch *how, const char *arguments, int step, long ms,
                            int (*where)(const struct result *r, int step))
{
    const struct stop at = {.step = step, .ms = ms, .number = SIGTERM, .times = 1, .where = where};
    struct result r = e2e_stop(how, arguments, &at);
    return finished_of(&r);
}

/* Checks that a stopped run, when it is resumed, equals the run that was not stopped. */
static void goes_on(const char *whole, const char *arguments)
{
    char path[64];
    e2e_succeeds(&(struct launch){.prepare = e2e_let_root_start_ranks}, "--resume run %s", arguments);
    struct curve a = e2e_curve(whole), b = e2e_curve("run");
    assert_int_equal(b.n, a.n);
    e2e_same_curve(&a, &b, a.n);
    snprintf(path, sizeof path, "%s/hf/model.safetensors", whole);
    e2e_same_file(path, "run/hf/model.safetensors");
}

/* After a skipped step, a stop saves the state of the step before it, which may be hours newer than the last save. */
static void behind_a_skipped_step(void **state)
{
    (void)state;
    pid_t pid =
        e2e_start(&(struct launch){.prepare = slow_drive}, TINY DISCRETE FOUR "--lr 1e37 --save-every 1 --keep 1 --out run");
    e2e_wait_for_output(pid, "\nstep 2 not saved: it was skipped");
    kill(pid, SIGTERM);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 128 + SIGTERM);
    e2e_contains(r.out, "of 4, saved: continue with ltrain --resume run");
    assert_true(e2e_exists("run/checkpoints/step-000001"));
    assert_int_equal(e2e_count("run/checkpoints/step-??????"),
                     2); /* one checkpoint is of step 2 or, on a slow machine, of step 3 */
}

static int has_mpi(void)
{
    return !E2E_SANITIZED && system("command -v mpiexec >/dev/null") == 0;
}

/* Checks that little work was in flight at the signal: on a drive's lanes, a window of blocks for each rank and lane. */
static void little_is_finished(const struct finished *f, int ranks)
{
    if (f->others > ranks * (2 * DRIVE_DEPTH + LANES))
        fail_msg("%d instructions were finished that nobody needs", f->others);
}

static void one_rank_with_a_slow_drive(void **state)
{
    static const struct when {
        long ms;
        int (*where)(const struct result *r, int step);
    } whens[] = {{80, in_update}, {700, in_passes}};
    const struct launch slow = {.prepare = slow_drive};
    (void)state;
    e2e_succeeds(&(struct launch){.prepare = e2e_let_root_start_ranks}, TINY DISCRETE FOUR "--out whole");
    for (int i = 0; i < 2; i++) {
        struct finished f = stop(&slow, TINY DISCRETE FOUR "--out run", 2, whens[i].ms, whens[i].where);
        little_is_finished(&f, 1);
        goes_on("whole", "");
    }
}

static void two_ranks_with_slow_drives(void **state)
{
    static const char *const meshes[] = {"dp=2", "ulysses=2", "ring=2"};
    const struct launch slow = {.prepare = slower_drives};
    (void)state;
    if (!has_mpi())
        skip();
    for (int i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "--ranks 2 --mesh %s" TINY DISCRETE "--steps 3 ", meshes[i]);
        e2e_remove("whole");
        e2e_succeeds(&(struct launch){.prepare = e2e_let_root_start_ranks}, "%s--out whole", arguments);
        strcat(arguments, "--out run");
        struct finished f = stop(&slow, arguments, 1, 200 + i * 500, i == 0 ? in_update : in_passes);
        little_is_finished(&f, 2);
        goes_on("whole", "");
    }
}

/* Options for a step that consists mostly of calls of attention, which a signal ends before they are complete. */
#define LONG \
    " --model tiny --data corpus.txt --seq-len 8k --tiles rows=2k,loss=1k --threads 1 --offload cpu --device cpu --steps 2 "

static void within_attention(void **state)
{
    static const char *const ranks[] = {"", "--ranks 2 --mesh ring=2"};
    const struct launch plain = {.prepare = e2e_let_root_start_ranks};
    (void)state;
    for (int i = 0; i < 1 + has_mpi(); i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "%s" LONG, ranks[i]);
        e2e_remove("whole");
        e2e_succeeds(&plain, "%s--out whole", arguments);
        strcat(arguments, "--out run");
        struct finished f = stop(&plain, arguments, 1, 50, in_passes);
        little_is_finished(&f, 1 + i);
        goes_on("whole", "");
    }
}

/* Ranks have fake GPUs and stage their messages through host memory. */
static void ranks_on_gpus(void **state)
{
    const struct launch slow = {.prepare = slower_drives};
    (void)state;
    if (!has_mpi() || !twin)
        skip();
#define GPUS "--ranks 2 --mesh dp=2 --device cuda --offload nvme --steps 3" TINY
    setenv("LTRAIN_CUDA_PLUGIN", twin, 1);
    setenv("LTRAIN_FAKE_CUDA", "seed=1,devices=2", 1);
    e2e_succeeds(&(struct launch){.prepare = e2e_let_root_start_ranks}, GPUS "--out whole");
    struct finished f = stop(&slow, GPUS "--out run", 1, 300, anywhere);
    assert_true(f.others >= 0);
    goes_on("whole", "");
    unsetenv("LTRAIN_CUDA_PLUGIN");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(one_rank_with_a_slow_drive), TEST(behind_a_skipped_step),
                                       TEST(two_ranks_with_slow_drives), TEST(within_attention), TEST(ranks_on_gpus)};
    twin = getenv("LTRAIN_CUDA_TWIN");
    return cmocka_run_group_tests_name("stops", tests, NULL, NULL);
}
