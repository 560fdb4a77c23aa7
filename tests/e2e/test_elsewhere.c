/* Tests resumed runs after a change: of the data, the directory, the settings' file, the length of the schedule. */
#include "harness.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUICK " --offload none --device cpu --effort quick "
#define SMALL "--model tiny --seq-len 128" TILES QUICK

/* Writes the first n bytes of the corpus. */
static void write_part(const char *path, size_t n)
{
    char *text = e2e_read("corpus.txt", NULL);
    text[n] = 0;
    e2e_write(path, "%s", text);
    free(text);
}

/* Data other than those of the checkpoint are refused with the difference, or accepted on demand, with the consequences. */
static void other_data(void **state)
{
    (void)state;
    write_part("t.txt", 4000);
    write_part("e.txt", 1000);
    e2e_succeeds(NULL, SMALL "--data t.txt --eval-data e.txt --eval-every 2 --steps 2 --save-every 2 --out run");
    e2e_copy("t.txt", "same.txt");
    write_part("t.txt", 5000);
    e2e_refuses(2, "--data: |/t.txt has 5000 bytes and had 4000|--data-changed continue|come again", NULL,
                "--resume run --steps 4");
    e2e_write("t.txt", "%s", "");
    char *text = e2e_read("corpus.txt", NULL);
    text[17] = '#', text[4000] = 0;
    e2e_write("t.txt", "%s", text);
    free(text);
    e2e_refuses(2, "/t.txt has other content, of the same length|sequences keep their order", NULL, "--resume run --steps 4");
    e2e_refuses(2, "/e.txt (1000 bytes) is where |/t.txt (4000 bytes) was; 1 more differ", NULL,
                "--resume run --steps 4 --data e.txt,t.txt");                       /* e.txt comes first */
    struct result r = e2e_succeeds(NULL, "--resume run --steps 3 --data same.txt"); /* the same bytes under another name */
    assert_null(strstr(r.out, "come again"));
}

static void other_data_in_other_places(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d", 0777), 0);
    write_part("d/1", 3000);
    write_part("d/2", 2000);
    write_part("e.txt", 1000);
    e2e_succeeds(NULL, SMALL "--data d --eval-data e.txt --eval-every 2 --steps 2 --save-every 2 --out run");
    write_part("d/3", 500);
    e2e_refuses(2, "--data: |there are 3 files and there were 2, |/d/3 is new", NULL, "--resume run --steps 4");
    assert_int_equal(rename("d/1", "d/3"), 0);
    e2e_refuses(2, "--data: |the same files come in another order, |/d/2 where |/d/1 was", NULL, "--resume run --steps 4");
    struct result r = e2e_succeeds(NULL, "--resume run --steps 4 --data-changed continue");
    e2e_contains(r.out, "resume: --data differs (the same files come in another order");
    e2e_contains(r.out, "): the order of all sequences changes, and some that were trained come again");
    r = e2e_succeeds(NULL, "--resume run --steps 5"); /* the run's data are now those with which it was continued */
    assert_null(strstr(r.out, "come again"));
    write_part("e.txt", 900);
    e2e_refuses(2, "--eval-data: |/e.txt has 900 bytes and had 1000|not comparable", NULL, "--resume run --steps 6");
}

/* Another split of the data and another schedule are explicit requests, so they are only reported. */
static void other_settings(void **state)
{
    (void)state;
    e2e_succeeds(NULL, SMALL
                 "--data corpus.txt --eval-fraction 0.1 --eval-every 9 --schedule cosine --steps 10 --save-every 10 --out run");
    e2e_copy("run", "other");
    struct result r = e2e_succeeds(NULL, "--resume run --eval-fraction 0.5 --steps 12");
    e2e_contains(r.out,
                 "resume: 78 of 157 sequences are held out for evaluation, 16 of 157 were: some that are held out now were "
                 "trained before; the order of all sequences changes");
    e2e_contains(r.out, "resume: the learning rate goes from 7.34e-06 in step 10 (cosine over 10 steps) to 2.01e-05 in step 11 "
                        "(cosine over 12 steps)\n");
    e2e_contains(r.out, "resume: settings differ from the checkpoint's: eval-fraction 0.5 (was 0.1), steps 12 (was 10)\n");
    r = e2e_succeeds(NULL, "--resume other --seq-len 64 --seed 2 --steps 11 --schedule constant");
    e2e_contains(r.out,
                 "resume: sequences have 64 tokens and had 128, so the data are cut anew: the order of all sequences changes");
    e2e_contains(r.out, "resume: the seed differs (2; was 1): the order of all sequences changes");
    e2e_contains(r.out, "to 0.0003 in step 11 (constant over 11 steps)\n");
}

static int in_the_root(void)
{
    return chdir("/");
}

/* A run is resumed from another directory, without the original weights, and after its parent directory was moved. */
static void found_from_anywhere(void **state)
{
    char here[4096];
    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    e2e_succeeds(NULL, SMALL "--data corpus.txt --steps 1 --out first");
    assert_int_equal(mkdir("project", 0777) + mkdir("project/texts", 0777), 0);
    assert_int_equal(rename("first/hf", "project/weights"), 0);
    write_part("project/texts/a.txt", 4000);
    assert_int_equal(chdir("project"), 0);
    e2e_succeeds(NULL,
                 "--model ./weights --data texts/*.t[x]t --seq-len 128" TILES QUICK "--steps 2 --save-every 2 --out runs/r/");
    assert_int_equal(chdir(here), 0);
    struct result r = e2e_succeeds(&(struct launch){.prepare = in_the_root}, "--resume %s/project/runs/r --steps 3", here);
    e2e_contains(r.out, "resume: step 2 from ");
    e2e_remove("project/weights");
    r = e2e_succeeds(&(struct launch){.prepare = in_the_root}, "--resume %s/project/runs/r --steps 4", here);
    e2e_contains(r.out, "resume: step 3 from ");
    assert_int_equal(mkdir("[a]*", 0777) + rename("project", "[a]*/project"), 0);
    r = e2e_succeeds(NULL, "--resume [a]*/project/runs/r --steps 5");
    e2e_contains(r.out, "resume: step 4 from ");
    e2e_contains(r.out, "/\\\\[a\\\\]\\\\*/project/texts/*.t[x]t");
    r = e2e_succeeds(NULL, "--resume [a]*/project/runs/r --steps 6"); /* config.yaml has the new place */
    e2e_contains(r.out, "settings differ from the checkpoint's: steps 6 (was 5)\n");
}

/* config.yaml is removed or emptied: every checkpoint has the settings. */
static void settings_are_in_checkpoints(void **state)
{
    (void)state;
#define UNUSUAL SMALL "--data corpus.txt --lr 1e-3 --weight-decay 0.2 --save-every 2 "
    e2e_succeeds(NULL, UNUSUAL "--steps 6 --out whole");
    e2e_succeeds(NULL, UNUSUAL "--steps 4 --out run");
    e2e_copy("run", "emptied");
    e2e_remove("run/config.yaml");
    e2e_write("emptied/config.yaml", "\n");
    e2e_succeeds(NULL, "--resume run --steps 6");
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
    assert_true(e2e_exists("run/config.yaml"));
    struct result r = e2e_succeeds(NULL, "--resume emptied --model tiny --data corpus.txt --seq-len 128 --steps 6");
    e2e_same_file("whole/hf/model.safetensors", "emptied/hf/model.safetensors");
    e2e_contains(r.out, "resume: emptied/config.yaml is gone or empty: the settings are those of the checkpoint");
    /* config.yaml lacks some settings: the others change, which is reported */
    e2e_write("run/config.yaml", "model: tiny\ndata: corpus.txt\nseq-len: 128\n");
    r = e2e_succeeds(NULL, "--resume run --steps 7" TILES QUICK);
    e2e_contains(r.out, "lr 0.0003 (was 0.001)");
    e2e_contains(r.out, "weight-decay 0.1 (was 0.2)");
}

/* If config.yaml cannot be read, the run is refused instead of using other settings. */
static void settings_that_cannot_be_read(void **state)
{
    (void)state;
    e2e_succeeds(NULL, SMALL "--data corpus.txt --save-every 1 --steps 1 --out run");
    char *before = e2e_read("run/config.yaml", NULL);
    assert_int_equal(chmod("run/config.yaml", 0), 0);
    e2e_refuses(2, "run/config.yaml|Permission denied", &(struct launch){.prepare = e2e_drop_reading}, "--resume run --steps 2");
    assert_int_equal(chmod("run/config.yaml", 0644), 0);
    char *after = e2e_read("run/config.yaml", NULL);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

/* A run that ended before its first checkpoint starts anew in its directory; a run that has left a model or a checkpoint does
 * not. */
static void anew_before_the_first_save(void **state)
{
    (void)state;
    e2e_succeeds(NULL, SMALL "--data corpus.txt --steps 3 --out run");
    e2e_refuses(2, "run already holds a run and its model", NULL, SMALL "--data corpus.txt --steps 2 --out run");
    e2e_remove("run/hf");
    for (int n = 1; n <= 2; n++) {
        char line[64];
        struct result r = e2e_succeeds(NULL, SMALL "--data corpus.txt --steps 2 --out run");
        snprintf(line, sizeof line, "it starts anew, and the former log is metrics-%d.jsonl\n", n);
        e2e_contains(r.out, line);
        assert_int_equal(e2e_curve("run").n, 2);
        e2e_remove("run/hf");
    }
    char *log = e2e_read("run/metrics-1.jsonl", NULL);
    assert_non_null(strstr(log, "\"step\":3"));
    free(log);
    assert_int_equal(mkdir("run/checkpoints", 0777), 0);
    e2e_refuses(2, "run/checkpoints has no checkpoint|--out instead of --resume", NULL, "--resume run");
    e2e_succeeds(NULL, SMALL "--data corpus.txt --steps 2 --save-every 2 --out run");
    e2e_remove("run/checkpoints/latest"); /* the state if the run was killed before it wrote `latest` */
    e2e_remove("run/hf");
    e2e_refuses(2, "run already holds a run: continue it with --resume", NULL, SMALL "--data corpus.txt --steps 2 --out run");
}

/* Waits until the program has printed n steps; lines of evaluations have no number of all steps. */
static void wait_for_steps(pid_t pid, int n)
{
    for (int steps = 0; steps < n;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
            return;
        char *text = e2e_read(".stdout", NULL);
        steps = 0;
        for (const char *at = text; (at = strstr(at, "\nstep ")); at++)
            steps += at[6 + strspn(at + 6, "0123456789")] == '/';
        free(text);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* If a data file is replaced during a run, the run saves its state and ends; once the original file is back it can be resumed as
 * if nothing had happened. */
static void data_change_under_a_run(void **state)
{
    (void)state;
#define LASTING SMALL "--data t.txt --eval-fraction 0.1 --eval-every 3 --grad-accum 2 "
    write_part("t.txt", 4000);
    e2e_copy("t.txt", "former.txt");
    pid_t pid = e2e_start(NULL, LASTING "--steps 1000000 --out run");
    wait_for_steps(pid, 4);
    assert_int_equal(truncate("t.txt", 3000), 0);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 1);
    assert_true(strncmp(r.err, "ltrain: ", 8) == 0 && strchr(r.err, '\n') == r.err + strlen(r.err) - 1);
    e2e_contains(r.err,
                 "/t.txt has changed since this run began to read it (3000 bytes, before 4000); the last good checkpoint is "
                 "run/checkpoints/step-");
    int n = e2e_count("run/checkpoints/step-??????") == 1 ? atoi(strstr(r.err, "step-") + 5) : 0;
    assert_true(n >= 4);
    e2e_refuses(2, "/t.txt has 3000 bytes and had 4000", NULL, "--resume run --steps %d", n + 2);
    e2e_copy("former.txt", "t.txt");
    r = e2e_succeeds(NULL, "--resume run --steps %d --save-every 0", n + 2);
    e2e_succeeds(NULL, LASTING "--steps %d --out whole", n + 2);
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
}

static int has_said(const char *words)
{
    char *text = e2e_read(".stdout", NULL);
    int there = strstr(text, words) != NULL;
    free(text);
    return there;
}

static int is_running(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

/* Changes the times of a data file during a run. Returns the number of the step that was saved. */
static int touched(const char *name, int steps)
{
    char line[64];
    e2e_remove("run");
    pid_t pid = e2e_start(NULL, SMALL "--data t.txt --eval-data e.txt --eval-every 3 --grad-accum 2 --steps 1000000 --out run");
    wait_for_steps(pid, steps);
    assert_int_equal(utimensat(AT_FDCWD, name, NULL, 0), 0);
    snprintf(line, sizeof line, "/%s is the same: training goes on\nstep ", name);
    while (!has_said(line) && is_running(pid))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    kill(pid, SIGTERM);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 128 + SIGTERM);
    e2e_contains(r.out, " was touched while the run goes on: all of it (");
    assert_null(strstr(strstr(r.out, line) + 1, line)); /* reported once */
    return atoi(strstr(r.out, "stopped by a signal at step ") + 28);
}

/* A file whose times change during a run is read again, which is reported, and nothing else changes. */
static void data_touched_under_a_run(void **state)
{
    (void)state;
    write_part("t.txt", 4000);
    write_part("e.txt", 1000);
    touched("e.txt", 1);
    int n = touched("t.txt", 2);
    e2e_succeeds(NULL, "--resume run --steps %d", n + 2);
    e2e_succeeds(NULL, SMALL "--data t.txt --eval-data e.txt --eval-every 3 --grad-accum 2 --steps %d --out whole", n + 2);
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
}

/* SIGTERM does not wait for the end of rereading a large file of zeros. */
static void stopped_while_data_are_read_again(void **state)
{
    (void)state;
    for (int try = 0, caught = 0; !caught; try++) {
        assert_true(try < 10); /* fails if, ten times, the machine reads the whole file between two looks at the output */
        e2e_remove("run");
        e2e_write("t.txt", "%s", "");
        assert_int_equal(truncate("t.txt", 300 << 20), 0);
        pid_t pid = e2e_start(NULL, SMALL "--data t.txt --steps 1000000 --out run");
        wait_for_steps(pid, 2);
        assert_int_equal(utimensat(AT_FDCWD, "t.txt", NULL, 0), 0);
        while (!has_said(" was touched ") && is_running(pid))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        kill(pid, SIGTERM);
        struct result r = e2e_wait(pid);
        assert_int_equal(r.status, 128 + SIGTERM);
        assert_string_equal(r.err, "");
        caught = !strstr(r.out, " is the same: ");
        e2e_contains(r.out, "(300 MiB) is read again");
        e2e_contains(r.out, "saved: continue with ltrain --resume run");
        int n = atoi(strstr(r.out, "stopped by a signal at step ") + 28), lines = 0;
        char *log = e2e_read("run/metrics.jsonl", NULL);
        for (const char *at = log; (at = strchr(at, '\n')); at++)
            lines++;
        free(log);
        assert_int_equal(lines, n);
    }
}

/* A resumed run does not reread its data, but notices changes made since, even to files with the same length and time of
 * modification. */
static void data_are_remembered(void **state)
{
    (void)state;
#define REMEMBERED "data: no file was touched since an earlier start"
    struct stat s;
    write_part("t.txt", 4000);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* recently changed files would be read again */
    struct result r = e2e_succeeds(NULL, SMALL "--data t.txt --steps 2 --save-every 2 --out run");
    assert_null(strstr(r.out, REMEMBERED));
    if (!e2e_exists("run/data-read.txt"))
        skip(); /* the file system's clock is another host's */
    r = e2e_succeeds(NULL, "--resume run --steps 3");
    e2e_contains(r.out, REMEMBERED);
    e2e_succeeds(NULL, SMALL "--data t.txt --steps 3 --out whole");
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
    assert_int_equal(stat("t.txt", &s), 0);
    FILE *f = fopen("t.txt", "r+e");
    fputc('#', f);
    fclose(f);
    assert_int_equal(utimensat(AT_FDCWD, "t.txt", (const struct timespec[]){s.st_atim, s.st_mtim}, 0), 0);
    e2e_refuses(2, "/t.txt has other content, of the same length", NULL, "--resume run --steps 4");
    write_part("t.txt", 4000); /* the former content */
    r = e2e_succeeds(NULL, "--resume run --steps 4");
    assert_null(strstr(r.out, REMEMBERED));
}

/* A killed run had trained further than its checkpoint: its log is cut back when it is resumed, which is reported. */
static void what_was_not_saved_is_trained_again(void **state)
{
    (void)state;
    write_part("t.txt", 4000);
    e2e_succeeds(NULL, SMALL "--data t.txt --steps 2 --save-every 2 --out run");
    FILE *f = fopen("run/metrics.jsonl", "ae");
    fputs("{\"step\": 3, \"loss\": 1}\n{\"step\": 4, \"lo", f);
    fclose(f);
    struct result r = e2e_succeeds(NULL, "--resume run --steps 4");
    e2e_contains(r.out, "resume: the run had come to step 3, which was not saved: what follows step 2 is trained again\n");
    assert_int_equal(e2e_curve("run").n, 4);
    assert_true(e2e_exists("run/checkpoints/step-000002") && e2e_exists("run/checkpoints/step-000004"));
    e2e_write("run/checkpoints/step-000004/optimizer.safetensors", "damaged");
    r = e2e_succeeds(NULL, "--resume run --steps 4");
    e2e_contains(r.out,
                 "resume: the run had come to step 4, whose checkpoint is passed over: what follows step 2 is trained again\n");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(other_data),
        TEST(other_data_in_other_places),
        TEST(other_settings),
        TEST(found_from_anywhere),
        TEST(settings_are_in_checkpoints),
        TEST(settings_that_cannot_be_read),
        TEST(anew_before_the_first_save),
        TEST(data_change_under_a_run),
        TEST(what_was_not_saved_is_trained_again),
        TEST(data_are_remembered),
        TEST(data_touched_under_a_run),
        TEST(stopped_while_data_are_read_again),
    };
    return cmocka_run_group_tests_name("elsewhere", tests, NULL, NULL);
}
