/* Tests system calls that look at files rather than move bytes. The n-th call of a kind fails or never returns, for everything
 * that a run uses: its directory, data, lock, log and checkpoints. */
#include "harness.h"

#include "extent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOW " --device cpu:discrete --offload nvme "
#define NEW "--model weights --data texts,more*.txt --seq-len 128" TILES HOW "--steps 3 --save-every 1 --keep 1 --out run"
#define AGAIN "--resume run --steps 4"

static const char *const kinds[] = {"stat",     "access", "opendir", "readdir",  "rmdir",  "flock",
                                    "truncate", "fts",    "glob",    "realpath", "statvfs"};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST = 8 };
static const char *only[MOST];
static int new_calls[KINDS]; /* number of calls of each kind in a new run; 0: not counted */

static int is_left_out(const char *kind)
{
    int found = !only[0];
    for (int i = 0; i < MOST && only[i]; i++)
        found |= strcmp(only[i], kind) == 0;
    return !found;
}

/* Makes a model directory, and data in a directory and behind a pattern. Also makes the expected results of a new run and of a
 * resumed one. */
static int prepare(void **state)
{
    if (e2e_setup(state) != 0)
        return -1;
    e2e_succeeds(NULL, "--model tiny --data corpus.txt --seq-len 128" TILES "--steps 1 --out first");
    char *text = e2e_read("corpus.txt", NULL);
    if (rename("first/hf", "weights") != 0 || mkdir("texts", 0777) != 0)
        return -1;
    e2e_write("weights/tokenizer_config.json", "{\"x\": 1}\n");
    e2e_write("texts/a", "%.3000s", text);
    e2e_write("texts/b", "%.2000s", text + 3000);
    e2e_write("more1.txt", "%.1500s", text + 6000);
    free(text);
    e2e_succeeds(NULL, NEW);
    e2e_copy("run", "whole");
    e2e_succeeds(NULL, AGAIN);
    e2e_copy("run", "resumed");
    return 0;
}

static int count_calls(const char *kind, const char *arguments)
{
    char fault[64], word[64];
    snprintf(fault, sizeof fault, "%s:1:COUNT", kind);
    snprintf(word, sizeof word, "LTRAIN_FAULT: %s ", kind);
    struct result r = e2e_run(&(struct launch){.fault = fault}, "%s", arguments);
    e2e_contains(r.err, word);
    return atoi(strstr(r.err, word) + strlen(word));
}

/* Checks that the run, which printed `out`, equals the run without faults. If an older checkpoint could not be removed, that must
 * have been reported. */
static void same_as(const char *reference, const char *out, const char *fault)
{
    static const char *const files[] = {"model.safetensors", "config.json", "tokenizer_config.json"};
    char path[64], own[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/hf/%s", reference, files[i]);
        snprintf(own, sizeof own, "run/hf/%s", files[i]);
        e2e_same_file(path, own);
    }
    struct curve a = e2e_curve(reference), b = e2e_curve("run");
    assert_int_equal(a.n, b.n);
    e2e_same_curve(&a, &b, a.n);
    int checkpoints = e2e_count("run/checkpoints/step-??????");
    int said = strstr(out, "\nolder checkpoints were not removed: cannot read the directory ") != NULL;
    if (checkpoints < 1 || checkpoints > 1 + said)
        fail_msg("%s: %d checkpoints are left", fault, checkpoints);
}

/* Checks a failed run: one sentence with the cause, status 2 if nothing had run yet, else 1; and nothing is lost. */
static void is_refused(struct result r, const char *reference, const char *fault, int resumed)
{
    int began = strstr(r.out, "\nstep ") != NULL, elsewhere = strstr(r.err, " instead: ltrain --resume ") != NULL;
    size_t n = strlen(r.err);
    if (r.status != 1 && (r.status != 2 || began))
        fail_msg("%s: exit status %d: %s", fault, r.status, r.err);
    if (strncmp(r.err, "ltrain: ", 8) != 0 || strchr(r.err, '\n') != r.err + n - 1 || !strstr(r.err, "Input/output error"))
        fail_msg("%s: %s", fault, r.err);
    if (elsewhere) { /* the last save could not look at the run's directory */
        e2e_remove("run");
        e2e_copy("run-saved", "run");
        e2e_remove("run-saved");
        e2e_remove("run/metrics.jsonl");
        e2e_succeeds(NULL, resumed ? AGAIN : "--resume run");
        char path[64];
        snprintf(path, sizeof path, "%s/hf/model.safetensors", reference);
        e2e_same_file(path, "run/hf/model.safetensors");
        return;
    }
    if (resumed || e2e_count("run/checkpoints/step-??????") > 0)
        e2e_succeeds(NULL, resumed ? AGAIN : "--resume run");
    else
        e2e_succeeds(NULL, NEW);
    same_as(reference, "", fault);
}

static void sweep(const char *arguments, const char *reference, int resumed)
{
    for (int k = 0; k < KINDS; k++) {
        int refused = 0, absorbed = 0;
        if (is_left_out(kinds[k]))
            continue;
        e2e_remove("run");
        if (resumed)
            e2e_copy("whole", "run");
        int calls = count_calls(kinds[k], arguments);
        if (!resumed)
            new_calls[k] = calls;
        const int wider = resumed || EXTENT_SANITIZED; /* the release build tries more of a new run's many calls */
        for (int n = 1; n <= calls; n += extent_is_long() ? 1 : wider ? 3 + 4 * n : 1 + 2 * n) {
            char fault[64];
            snprintf(fault, sizeof fault, "%s:%d:EIO", kinds[k], n);
            e2e_remove("run");
            if (resumed)
                e2e_copy("whole", "run");
            struct result r = e2e_run(&(struct launch){.fault = fault}, "%s", arguments);
            if (r.status != 0) {
                refused++;
                is_refused(r, reference, fault, resumed);
            } else {
                absorbed++;
                if (r.err[0])
                    fail_msg("%s: %s", fault, r.err);
                same_as(reference, r.out, fault);
            }
        }
        print_message("%s: %d calls, %d refused, %d absorbed\n", kinds[k], calls, refused, absorbed);
        assert_true(calls > 0);
    }
}

static void failing_calls_of_a_new_run(void **state)
{
    (void)state;
    sweep(NEW, "whole", 0);
}

static void failing_calls_of_a_resumed_run(void **state)
{
    (void)state;
    sweep(AGAIN, "resumed", 1);
}

/* Calls hang early in the run or late. */
static void calls_that_never_return(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        char fault[64];
        if (is_left_out(kinds[k]))
            continue;
        e2e_remove("run");
        const int calls = new_calls[k] > 0 ? new_calls[k] : count_calls(kinds[k], NEW);
        snprintf(fault, sizeof fault, "%s:%d:HANG", kinds[k], 1 + (calls - 1) * (k % 2 ? 3 : 1) / 4);
        e2e_remove("run");
        e2e_refuses(1, "ltrain: cannot |: no answer for 0.5 s (--drive-timeout): check the drive",
                    &(struct launch){.fault = fault}, NEW " --drive-timeout 0.5");
    }
}

int main(int argc, char **argv)
{
    for (int k = 1; k < argc && k <= MOST; k++) /* arguments name the kinds to try */
        only[k - 1] = argv[k];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_calls_of_a_new_run),
        cmocka_unit_test(failing_calls_of_a_resumed_run),
        cmocka_unit_test(calls_that_never_return),
    };
    return cmocka_run_group_tests_name("calls", tests, prepare, e2e_teardown);
}
