/* Tests that runs whose sequence length changes equal, bit for bit, runs that are stopped and resumed with the next length. */
#include "harness.h"

#include "extent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SMALL " --data corpus.txt" TILES
#define TINY_MODEL " --model tiny" SMALL
#define NVME " --offload nvme --nvme-max 300M"
enum { CHANGES_AT = 3, STEPS = 7 };

/* Reads "seq_len" of each step of RUN/metrics.jsonl. */
static int lengths_of(const char *run, long long *out, int room)
{
    char path[256];
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = e2e_read(path, NULL);
    for (char *at = text; (at = strstr(at, "\"seq_len\":")) && n < room; at++)
        out[n++] = strtoll(at + strlen("\"seq_len\":"), NULL, 10);
    free(text);
    return n;
}

static void lengths_are(const char *run, const long long *want, int n)
{
    long long have[STEPS];
    assert_int_equal(lengths_of(run, have, STEPS), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(have[i], want[i]);
}

static void same_runs(const char *a, const char *b, int steps)
{
    char x[256], y[256];
    struct curve one = e2e_curve(a), other = e2e_curve(b);
    assert_int_equal(one.n, steps);
    assert_int_equal(other.n, steps);
    e2e_same_curve(&one, &other, steps);
    snprintf(x, sizeof x, "%s/hf/model.safetensors", a);
    snprintf(y, sizeof y, "%s/hf/model.safetensors", b);
    e2e_same_file(x, y);
}

/* Compares runs in which lengths go up, or up and down, with three runs, each resumed from the one before. */
static void equals_resumed(const char *options)
{
    static const long long lengths[STEPS] = {128, 128, 256, 256, 256, 64, 64};
    e2e_remove("run");
    e2e_remove("parts");
    struct result r = e2e_succeeds(NULL, "--seq-len 128@2,256@3,64 --steps 7 --out run %s", options);
    e2e_contains(r.out, "steps 3 to 5 take");
    e2e_contains(r.out, "step 6: sequences of 64 tokens from here on");
    lengths_are("run", lengths, STEPS);
    e2e_succeeds(NULL, "--seq-len 128 --steps 2 --save-every 2 --out parts %s", options);
    e2e_succeeds(NULL, "--resume parts --seq-len 256 --steps 5");
    e2e_succeeds(NULL, "--resume parts --seq-len 64 --steps 7");
    same_runs("run", "parts", STEPS);
}

static void equals_runs_that_are_resumed(void **state)
{
    (void)state;
    equals_resumed(TINY_MODEL NVME);
    if (EXTENT_SANITIZED)
        return;
    equals_resumed(TINY_MODEL " --offload none --dtype bf16 --optim-dtype bf16 --grad-accum 2");
    equals_resumed(TINY_MODEL NVME " --device cpu:discrete --dtype bf16");
}

/* Runs are resumed within a stretch of equal length, at its edges, and before the first change. */
static void resumed_anywhere(void **state)
{
    (void)state;
    e2e_succeeds(NULL, TINY_MODEL NVME
                 " --seq-len 128@3,256 --steps 7 --save-every 1 --keep 9 --eval-fraction 0.2 --eval-every 2 --out run");
    for (int step = EXTENT_SANITIZED ? 3 : 1; step < STEPS; step += EXTENT_SANITIZED ? STEPS : step == 3 ? 1 : 2) {
        e2e_copy("run", "again");
        e2e_remove("again/hf");
        for (int later = step + 1; later <= STEPS; later++) {
            char path[64];
            snprintf(path, sizeof path, "again/checkpoints/step-%06d", later);
            e2e_remove(path);
        }
        char latest[32];
        snprintf(latest, sizeof latest, "step-%06d\n", step);
        e2e_write("again/checkpoints/latest", "%s", latest);
        struct result r = e2e_succeeds(NULL, "--resume again");
        if (strstr(r.out, "differ") || strstr(r.out, "cut anew"))
            fail_msg("resumed at step %d: %s", step, r.out);
        same_runs("run", "again", STEPS);
    }
}

/* A run with one length is resumed with several lengths, and the other way round. */
static void changed_at_a_resume(void **state)
{
    (void)state;
    static const long long lengths[STEPS] = {128, 128, 128, 256, 256, 64, 64};
    e2e_succeeds(NULL, TINY_MODEL NVME " --seq-len 128 --steps 2 --save-every 2 --out run");
    struct result r = e2e_succeeds(NULL, "--resume run --seq-len 128@3,256 --steps 5");
    e2e_contains(r.out, "seq-len 128@3,256 (was 128)");
    e2e_succeeds(NULL, "--resume run --seq-len 64 --steps 7");
    lengths_are("run", lengths, STEPS);
}

/* GPT-2's position table has as many rows as the longest sequence. */
static void learned_positions(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--model gpt2-tiny" SMALL NVME " --seq-len 64@2,128 --steps 4 --out run");
    e2e_refuses(2, "learned positions|8192", NULL, "--model gpt2-tiny" SMALL " --seq-len 64@2,8192 --steps 4 --out no");
}

static void refused(void **state)
{
    (void)state;
    e2e_refuses(2, "seq-len|@|not like", NULL, TINY_MODEL " --seq-len 64,128@3 --out no");
    e2e_refuses(2, "last length", NULL, TINY_MODEL " --seq-len 64@2,128@3 --out no");
    e2e_refuses(2, "at least 1 step", NULL, TINY_MODEL " --seq-len 64@0,128 --out no");
    e2e_refuses(2, "out of range", NULL, TINY_MODEL " --seq-len 1@2,128 --out no");
    e2e_refuses(2, "take 9 steps, and the run has 9", NULL, TINY_MODEL " --seq-len 64@9,128 --steps 9 --out no");
    e2e_refuses(2, "a sequence needs 32768|seq-len", NULL, TINY_MODEL " --packing concat --seq-len 64@2,32k --steps 9 --out no");
    e2e_refuses(2, "a sequence 64 (--seq-len)|--too-long", NULL,
                TINY_MODEL " --too-long refuse --seq-len 64@2,20k --steps 9 --out no");
    struct result r = e2e_refuses(3, "sequences of 65,536 tokens (--seq-len)|device", NULL,
                                  "plan" TINY_MODEL " --seq-len 64@2,64k --device-mem 3M --host-mem 3M --nvme-max 0");
    if (r.out[0])
        e2e_contains(r.out, "no fit");
    e2e_refuses(2, "--max-seq", NULL, "plan" TINY_MODEL " --max-seq --seq-len 64@2,128");
}

static void other_commands(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, "plan" TINY_MODEL NVME " --seq-len 64@10,256@20,128");
    e2e_contains(r.out, "11 to 30");
    e2e_contains(r.out, "31 to 100");
    r = e2e_succeeds(NULL, "plan" TINY_MODEL NVME " --seq-len 64@10,256 --json");
    e2e_contains(r.out, "\"lengths\"");
    e2e_write("ltrain.yaml", "model: tiny\ndata: corpus.txt\nseq-len: [64@2, 128]\nthreads: 1\n");
    r = e2e_succeeds(NULL, "check --steps 1");
    e2e_contains(r.out, "sequences of 64 tokens");
    e2e_contains(r.out, "sequences of 128 tokens");
    r = e2e_succeeds(NULL, "data --samples 0");
    e2e_contains(r.out, "sequences of 64:");
    e2e_contains(r.out, "sequences of 128:");
    r = e2e_succeeds(NULL, "plan --max-seq --device-mem 4M --host-mem 4M --nvme-max 0 --effort quick");
    e2e_contains(r.out, "tokens");
}

/* All runs have two ranks: the mesh is a part of the numerics key. */
static void on_several_ranks(void **state)
{
    (void)state;
    static const struct launch ranks = {.prepare = e2e_let_root_start_ranks};
    if (!strstr(e2e_succeeds(NULL, "--version").out, "MPI"))
        skip();
    e2e_succeeds(&ranks, "--ranks 2" TINY_MODEL NVME " --sp ulysses --seq-len 128@2,256 --steps 4 --out run");
    e2e_succeeds(&ranks, "--ranks 2" TINY_MODEL NVME " --sp ulysses --seq-len 128 --steps 2 --save-every 2 --out parts");
    e2e_succeeds(&ranks, "--resume parts --seq-len 256 --steps 4");
    same_runs("run", "parts", 4);
    /* one rank continues across the change from the state that two ranks saved before it */
    e2e_succeeds(&ranks, "--ranks 2" TINY_MODEL NVME " --seq-len 128@2,256 --steps 4 --save-every 1 --keep 9 --out more");
    e2e_remove("more/checkpoints/step-000002");
    e2e_remove("more/checkpoints/step-000003");
    e2e_remove("more/checkpoints/step-000004");
    e2e_remove("more/hf");
    e2e_write("more/checkpoints/latest", "step-000001\n");
    e2e_succeeds(&ranks, "--resume more --ranks auto --mesh auto");
    static const long long lengths[4] = {128, 128, 256, 256};
    lengths_are("more", lengths, 4);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(equals_runs_that_are_resumed),
        TEST(resumed_anywhere),
        TEST(changed_at_a_resume),
        TEST(learned_positions),
        TEST(refused),
        TEST(other_commands),
        TEST(on_several_ranks),
    };
    return cmocka_run_group_tests_name("lengths", tests, NULL, NULL);
}
