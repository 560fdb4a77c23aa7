/* Tests who owns a run's directory: second runs, names of runs that start in the same second, directories that are moved away. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void wait_for_file(pid_t pid, const char *path)
{
    while (!e2e_ended(pid) && !e2e_exists("%s", path))
        usleep(1000);
    assert_true(e2e_exists("%s", path));
}

/* A second run that uses the directory of a running one is refused and leaves it alone; after the first run is killed, it can be
 * resumed at once. */
static void in_use(void **state)
{
    (void)state;
    char words[64];
    pid_t pid = e2e_start(NULL, TINY "--offload none --steps 1000000 --save-every 2 --out run");
    wait_for_file(pid, "run/checkpoints/latest");
    snprintf(words, sizeof words, "run is in use: process %d on host |(rank 0 of 1)|wait", (int)pid);
    e2e_refuses(2, words, NULL, TINY "--offload none --steps 2 --out run");
    e2e_refuses(2, words, NULL, "--resume run");
    assert_false(e2e_ended(pid));
    kill(pid, SIGKILL);
    assert_int_equal(e2e_wait(pid).status, 128 + SIGKILL);
    assert_true(e2e_exists("run/run.lock"));
    struct result r = e2e_succeeds(NULL, "--resume run --steps 1");
    e2e_contains(r.out, "has ended without releasing run: its lock is taken over\n");
    assert_false(e2e_exists("run/run.lock"));
}

static void wait_for_words(pid_t pid, const char *words)
{
    for (int found = 0; !found; usleep(2000)) {
        char *text = e2e_read(".stdout", NULL);
        found = strstr(text, words) != NULL;
        free(text);
        assert_true(found || !e2e_ended(pid));
    }
}

/* A directory moved away during its run is reported at each save; at the end the state is saved elsewhere. */
static void moved(void **state)
{
    (void)state;
    pid_t pid = e2e_start(NULL, TINY "--offload none --steps 1000000 --save-every 1 --out run");
    wait_for_file(pid, "run/checkpoints/latest");
    assert_int_equal(rename("run", "away"), 0);
    wait_for_words(pid, "not saved: the run's directory run was renamed while the run goes on (it is ");
    wait_for_words(pid, "/away now): rename it back; training goes on, and the next save is that of step ");
    assert_false(e2e_exists("run"));
    assert_int_equal(rename("away", "run") | unlink("run/checkpoints/latest"), 0);
    wait_for_file(pid, "run/checkpoints/latest");
    int before = e2e_count_unsaved();
    assert_int_equal(rename("run", "away"), 0);
    while (e2e_count_unsaved() < before + 2 && !e2e_ended(pid)) /* at least one step was not saved */
        usleep(2000);
    kill(pid, SIGTERM);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "ltrain: the run's directory run was renamed while the run goes on");
    e2e_contains(r.err, "/run-saved instead: ltrain --resume ");
    assert_false(e2e_exists("run"));
    assert_false(e2e_exists("away/run.lock"));
    r = e2e_succeeds(NULL, "--resume run-saved --steps 1");
    e2e_contains(r.out, "all 1 steps are done");
    e2e_succeeds(NULL, "--resume away --steps 1");
}

/* A run of another host has taken over the directory: the state is saved elsewhere at the next save, and nothing more is written
 * into the directory. */
static void taken_over(void **state)
{
    (void)state;
    pid_t pid = e2e_start(NULL, TINY "--offload none --steps 1000000 --save-every 1 --out run");
    wait_for_file(pid, "run/checkpoints/latest");
    e2e_write("other",
              "ltrain run\nhost node7\nboot b2a53e5e-0000-4000-8000-000000000001\npid 1\npid-namespace 4\nborn 77\nranks 8\n"
              "id 00000000000000ab\nbeat 5\n");
    e2e_copy("other", "new");
    assert_int_equal(rename("new", "run/run.lock"), 0);
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "ltrain: process 1 on host node7 (rank 0 of 8) has taken run over, while this one stood still");
    e2e_contains(r.err, "/run-saved instead: ltrain --resume ");
    e2e_same_file("other", "run/run.lock");
    r = e2e_succeeds(NULL, "--resume run-saved --steps 1");
    e2e_contains(r.out, "all 1 steps are done");
}

static int count_lines(const char *path)
{
    int n = 0;
    char *text = e2e_read(path, NULL);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n++;
    free(text);
    return n;
}

/* A run that seldom saves notices at the next line of its log that it has lost its directory: at most the line being written is
 * still added. */
static void taken_over_between_saves(void **state)
{
    (void)state;
    pid_t pid = e2e_start(NULL, TINY "--offload none --steps 1000000 --out run");
    wait_for_words(pid, "\nstep 3/");
    e2e_write("new",
              "ltrain run\nhost node7\nboot b2a53e5e-0000-4000-8000-000000000001\npid 1\npid-namespace 4\nborn 77\nranks 8\n"
              "id 00000000000000ab\nbeat 5\n");
    assert_int_equal(rename("new", "run/run.lock"), 0);
    int before = count_lines("run/metrics.jsonl");
    struct result r = e2e_wait(pid);
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "ltrain: process 1 on host node7 (rank 0 of 8) has taken run over, while this one stood still: it writes "
                        "nothing there any more; step ");
    e2e_contains(r.err, "/run-saved instead: ltrain --resume ");
    assert_true(strchr(r.err, '\n') == r.err + strlen(r.err) - 1);
    assert_true(count_lines("run/metrics.jsonl") <= before + 1);
    assert_false(e2e_exists("run/hf"));
    assert_int_equal(e2e_count("run/checkpoints/*"), 0);
    e2e_succeeds(NULL, "--resume run-saved --steps 1");
}

/* Refused runs leave neither a lock nor a directory. */
static void refused(void **state)
{
    (void)state;
    e2e_refuses(3, "the plan needs ", NULL, TINY "--device-mem 1K --out run");
    assert_false(e2e_exists("run"));
    assert_int_equal(mkdir("run", 0777), 0);
    e2e_refuses(3, "the plan needs ", NULL, TINY "--device-mem 1K --out run");
    assert_int_equal(rmdir("run"), 0);
}

#define SECONDS 90

/* Other runs have taken the default names for this second and the next ones. */
static void names_of_the_same_second(void **state)
{
    (void)state;
    time_t now = time(NULL);
    assert_int_equal(mkdir("runs", 0777), 0);
    for (int i = -1; i < SECONDS; i++) {
        char name[64];
        time_t at = now + i;
        struct tm tm;
        strftime(name, sizeof name, "runs/%Y%m%d-%H%M%S-tiny", localtime_r(&at, &tm));
        assert_int_equal(mkdir(name, 0777), 0);
    }
    struct result r = e2e_succeeds(NULL, TINY "--offload nvme --steps 1 --save-every 1");
    assert_int_equal(e2e_count("runs/*-tiny-2/hf/model.safetensors"), 1);
    assert_int_equal(e2e_count("runs/*-tiny/*"), 0);
    e2e_contains(r.out, "-tiny-2/hf\n");
    char *yaml = NULL, path[128];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(strstr(r.out, "model: runs/") + 7, "\n") - 3,
             strstr(r.out, "model: runs/") + 7);
    assert_int_equal(rename(path, "run"), 0);
    yaml = e2e_read("run/config.yaml", NULL);
    e2e_contains(yaml, "-tiny-2\"");
    free(yaml);
    e2e_succeeds(NULL, "--resume run --steps 2");
}

/* Links that other users planted in an existing directory are not followed when writing: the run names them and ends, or moves a
 * log aside. */
static void planted_links(void **state)
{
    (void)state;
    static const char *const names[] = {"plan.txt", "plan.json", "metrics.jsonl", "data.txt", "config.yaml.partial", "run.lock"};
    char path[64], words[96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        e2e_remove("run");
        e2e_write("victim", "kept\n");
        assert_int_equal(mkdir("run", 0777), 0);
        snprintf(path, sizeof path, "run/%s", names[i]);
        assert_int_equal(symlink("../victim", path), 0);
        struct result r = e2e_run(NULL, TINY "--offload none --steps 1 --out run");
        snprintf(words, sizeof words, "run/%s: it is a link", names[i]);
        if (r.status != 0)
            e2e_contains(r.err, words);
        assert_int_equal(r.status == 0, strcmp(names[i], "metrics.jsonl") == 0);
        char *text = e2e_read("victim", NULL);
        assert_string_equal(text, "kept\n");
        free(text);
    }
}

/* Links planted where a checkpoint or an export is gathered are replaced by directories, and what they lead to stays as it is. */
static void planted_directories(void **state)
{
    (void)state;
    static const char *const names[] = {"run/checkpoints/step-000001.partial", "run/hf/export.partial",
                                        "run/checkpoints/latest.partial"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        e2e_remove("run");
        e2e_remove("elsewhere");
        assert_int_equal(mkdir("run", 0777) | mkdir("run/checkpoints", 0777) | mkdir("run/hf", 0777) | mkdir("elsewhere", 0777),
                         0);
        e2e_write("elsewhere/victim", "kept\n");
        assert_int_equal(symlink("../../elsewhere", names[i]), 0);
        struct result r = e2e_run(NULL, TINY "--offload none --steps 1 --save-every 1 --out run");
        if (r.status != 0)
            e2e_contains(r.err, "it is a link");
        char *text = e2e_read("elsewhere/victim", NULL);
        assert_string_equal(text, "kept\n");
        free(text);
        assert_int_equal(e2e_count("elsewhere/*"), 1);
        assert_true(r.status != 0 || e2e_exists("run/hf/model.safetensors"));
    }
}

static void planted_partial_file(void **state)
{
    (void)state;
    e2e_write("victim", "kept\n");
    assert_int_equal(symlink("victim", "picture.svg.partial"), 0);
    e2e_refuses(2, "--svg: cannot write picture.svg: it is a link", NULL, "plan " TINY "--svg picture.svg");
    char *text = e2e_read("victim", NULL);
    assert_string_equal(text, "kept\n");
    free(text);
    /* a link named by the user is the user's own, and is followed */
    assert_int_equal(unlink("picture.svg.partial") | symlink("drawn.svg", "picture.svg"), 0);
    e2e_write("drawn.svg", "old\n");
    e2e_succeeds(NULL, "plan " TINY "--svg picture.svg");
    text = e2e_read("drawn.svg", NULL);
    e2e_contains(text, "</svg>");
    free(text);
}

/* The owner of the directory, another user, could plant or replace files in it during the run. */
static void directory_of_another_user(void **state)
{
    (void)state;
    assert_int_equal(mkdir("theirs", 0777), 0);
    if (geteuid() != 0 || chown("theirs", 4321, 4321) != 0)
        skip();
    e2e_refuses(2, "--out theirs belongs to user 4321 and this process to user 0|such as theirs/run", NULL,
                TINY "--offload none --steps 1 --out theirs");
    assert_int_equal(mkdir("own", 0777) | symlink("own", "link") | lchown("link", 4321, 4321), 0);
    e2e_refuses(2, "--out link belongs to user 4321", NULL, TINY "--offload none --steps 1 --out link");
    e2e_succeeds(NULL, TINY "--offload none --steps 1 --save-every 1 --out theirs/run");
    assert_int_equal(chown("theirs/run", 4321, 4321), 0);
    e2e_succeeds(NULL, "--resume theirs/run --steps 2"); /* a resume accepts the directory, whose content is known */
}

/* Links that another user planted in place of the run's directories or of named results are not followed; the user's own links
 * are. */
static void links_of_another_user(void **state)
{
    (void)state;
    assert_int_equal(mkdir("elsewhere", 0777) | mkdir("run", 0777), 0);
    if (geteuid() != 0 || chown("elsewhere", 4321, 4321) != 0)
        skip();
    static const char *const names[] = {"run/checkpoints", "run/hf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[96];
        assert_int_equal(symlink("../elsewhere", names[i]) | lchown(names[i], 4321, 4321), 0);
        snprintf(words, sizeof words, "%s is a link that belongs to user 4321", names[i]);
        e2e_refuses(2, words, NULL, TINY "--offload none --steps 1 --save-every 1 --out run");
        assert_int_equal(rmdir("elsewhere"), 0); /* nothing was written */
        assert_int_equal(mkdir("elsewhere", 0777) | chown("elsewhere", 4321, 4321) | unlink(names[i]), 0);
    }
    e2e_write("victim", "kept\n");
    assert_int_equal(symlink("victim", "picture.svg") | lchown("picture.svg", 4321, 4321), 0);
    e2e_refuses(2, "--svg: picture.svg is a link that belongs to user 4321", NULL, "plan " TINY "--svg picture.svg");
    assert_int_equal(symlink("victim", "samples.jsonl") | lchown("samples.jsonl", 4321, 4321), 0);
#define SAMPLES "eval --model tiny --tasks needle --lengths 512 --samples 1 --depths 50%% --write-samples samples.jsonl"
    e2e_refuses(2, "--write-samples: samples.jsonl is a link that belongs to user 4321", NULL, SAMPLES);
    char *text = e2e_read("victim", NULL);
    assert_string_equal(text, "kept\n");
    free(text);
    assert_int_equal(lchown("samples.jsonl", 0, 0), 0);
    e2e_succeeds(NULL, SAMPLES);
    text = e2e_read("victim", NULL);
    e2e_contains(text, "{\"input_ids\"");
    free(text);
    assert_int_equal(chown("elsewhere", 0, 0) | symlink("../elsewhere", "run/checkpoints"), 0);
    e2e_succeeds(NULL, TINY "--offload none --steps 1 --save-every 1 --out run");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(in_use),
        TEST(moved),
        TEST(taken_over),
        TEST(taken_over_between_saves),
        TEST(refused),
        TEST(names_of_the_same_second),
        TEST(planted_links),
        TEST(planted_directories),
        TEST(planted_partial_file),
        TEST(directory_of_another_user),
        TEST(links_of_another_user),
    };
    return cmocka_run_group_tests_name("directory", tests, NULL, NULL);
}
