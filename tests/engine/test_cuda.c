/* Tests --device cuda on the fake runtime: results have the bits of cpu:discrete whatever the order in which streams run, only
 * the device touches device memory, and every failure gives one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "device/plugin.h"
#include "engine/backend_cpu.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "extent.h"
#include "plan/cells.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { S = 112, STEPS = 2, LAYERS = 2, ACCUM = 2 };

static struct twin twin;
static const struct target nothing = {.threads = 1};

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest;
};

static const struct cell cells[] = {
    {EVERYTHING(ON_DEVICE)},
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1},
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE},
    {.params = ON_HOST, .grads = ON_HOST, .optim = ON_DRIVES, .acts = ON_HOST, .alpha = KEEP_HALF},
};
#define CELLS (int)(sizeof cells / sizeof *cells)

static enum status run_steps(struct rig *r, const struct sequence *q, struct outcome *out)
{
    TRY(session_initialise(r->session, 5));
    for (int i = 0; i < STEPS; i++)
        TRY(rig_step(r, q, ACCUM, &out->loss[i], &out->norm[i]));
    TRY(rig_flush(r));
    return rig_digest(r, &out->digest);
}

/* Runs the cell. *calls: number of calls of the runtime until the last step is done. */
static enum status run(const struct cell *c, enum device_kind device, enum run_mode mode, struct outcome *out, long *calls)
{
    struct rig r;
    struct model *model;
    struct sequence q[ACCUM];
    memset(out, 0, sizeof *out);
    rig_defaults(&r, S);
    rig_cell_defaults(&r.settings, S, F32);
    cell_apply(c, &r.settings.plan);
    r.settings.plan.device = device;
    r.settings.plan.grad_accum = ACCUM;
    r.settings.plan.threads = 1;
    r.settings.gpu = AUTO;
    r.settings.mode = mode;
    assert_int_equal(cell_model(FAMILY_LLAMA, LAYERS, &model), OK);
    for (int i = 0; i < ACCUM; i++)
        sequence_random(&q[i], S, model->config.vocab, (uint64_t)(3 + i), NULL);
    enum status st = rig_start(&r, model);
    if (st == OK)
        st = run_steps(&r, q, out);
    if (calls)
        *calls = twin.calls();
    char said[1024];
    snprintf(said, sizeof said, "%s", status_message());
    rig_stop(&r);
    for (int i = 0; i < ACCUM; i++)
        sequence_free(&q[i]);
    return st == OK ? OK : status_fail(st, "%s", said);
}

static void expect_nothing_left(const char *words)
{
    if (twin.left()[0])
        fail_msg("%s: not given back:%s", words, twin.left());
}

static void orders_never_change_a_bit(void **state)
{
    (void)state;
    for (int c = 0; c < CELLS; c++) {
        struct outcome want, have;
        assert_int_equal(run(&cells[c], DEVICE_CPU_DISCRETE, MODE_RUN, &want, NULL), OK);
        for (int seed = 0; seed < extent(2, 6, 200); seed++) {
            char words[32];
            snprintf(words, sizeof words, "seed=%d", seed);
            twin.configure(words);
            if (run(&cells[c], DEVICE_CUDA, MODE_RUN, &have, NULL) != OK)
                fail_msg("%s, %s: %s", cell_name(&cells[c]), words, status_message());
            if (memcmp(&want, &have, sizeof want) != 0)
                fail_msg("%s, %s: loss %.17g, not %.17g", cell_name(&cells[c]), words, have.loss[STEPS - 1],
                         want.loss[STEPS - 1]);
            assert_true(twin.executed() > 0);
            expect_nothing_left(words);
        }
    }
}

/* Runs instructions one at a time in random orders; between them the device fills dead bytes. */
static void chaos_runs_there(void **state)
{
    (void)state;
    struct outcome want, have;
    twin.configure("seed=1");
    assert_int_equal(run(&cells[1], DEVICE_CPU_DISCRETE, MODE_RUN, &want, NULL), OK);
    assert_int_equal(run(&cells[1], DEVICE_CUDA, MODE_CHAOS, &have, NULL), OK);
    assert_memory_equal(&want, &have, sizeof want);
}

/* Runs attention forward and backward on a device, with operands one after another in the arena and gaps between them. */
enum { TENSORS = 13, GAP = 64, AROUND = 1 << 20 };

static void attend(struct backend *b, const struct op_attrs *a, unsigned char *memory)
{
    const struct target t = backend_cpu_target(1);
    const int64_t queries = a->attn.sq * a->attn.hq, keys = a->attn.sk * a->attn.hk, d = a->attn.head_dim, w = op_value_dim(a);
    const int64_t row = a->attn.sq * 4, work = max_i64(t.workspace(&t, OP_ATTN_FWD, a, 1), t.workspace(&t, OP_ATTN_BWD, a, 1));
    const int64_t bytes[TENSORS] = {queries * w * 2, queries * 4,  queries * d * 2, keys * d * 2, keys * w * 2,    row, row,
                                    queries * d * 4, keys * d * 4, keys * w * 4,    queries * 4,  queries * w * 2, work};
    char *at[TENSORS];
    int64_t end = 0;
    for (int i = 0; i < TENSORS; i++)
        end += round_up(bytes[i], GAP) + GAP;
    assert_int_equal(b->allocate(b, end), OK);
    char *next = b->base;
    for (int i = 0; i < TENSORS; next += round_up(bytes[i++], GAP) + GAP)
        at[i] = next;
    assert_true(at[TENSORS - 1] - b->base <= AROUND);
    for (int i = 0; i < AROUND; i++) /* small numbers in bf16 and fp32 */
        memory[i] = (unsigned char)(i % 2 ? 0x3e + i % 3 % 2 * 0x80 : i * 7 / 3);
    assert_int_equal(b->write(b, b->base, memory, at[TENSORS - 1] - b->base), OK);
    for (int64_t i = 0; i < a->attn.sq; i++) {
        const int32_t lo = (int32_t)(i < 20 ? 0 : i - 9), hi = (int32_t)i;
        assert_int_equal(b->write(b, at[5] + i * 4, &lo, 4), OK);
        assert_int_equal(b->write(b, at[6] + i * 4, &hi, 4), OK);
    }
    void *forward[] = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[12]};
    void *backward[] = {at[7], at[8], at[9], at[2], at[3], at[4], at[10], at[1], at[11], at[5], at[6], at[12]};
    assert_true(!b->prepare || (b->prepare(b, OP_ATTN_FWD, a, forward) == OK && b->prepare(b, OP_ATTN_BWD, a, backward) == OK));
    assert_int_equal(b->kernels[OP_ATTN_FWD](a, forward, b->stream[LANE_COMPUTE]), OK);
    assert_int_equal(b->kernels[OP_ATTN_BWD](a, backward, b->stream[LANE_COMPUTE]), OK);
    assert_true(!b->join || b->join(b) == OK);
    assert_int_equal(b->read(b, memory, b->base, at[TENSORS - 1] - b->base), OK);
    assert_int_equal(b->check(b), OK);
    b->close(b);
}

/* Attention with values of another width than keys, which no model has. */
static void values_of_another_width(void **state)
{
    (void)state;
    static const int32_t widths[][2] = {{192, 128}, {64, 128}, {40, 8}};
    static unsigned char want[AROUND], have[AROUND];
    const struct backend_cpu_config discrete = {.discrete = 1, .threads = 1};
    const struct target t = backend_cpu_target(1);
    const struct device_plugin *plugin;
    assert_int_equal(device_plugin_load(&plugin), OK);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct op_attrs a = {.attn = {.sq = 67, .sk = 67, .hq = 4, .hk = 2, .dtype = BF16, .scale = 0.1f}};
        struct backend *b;
        a.attn.head_dim = widths[i][0], a.attn.value_dim = widths[i][1];
        assert_int_equal(backend_cpu_create(&discrete, &b), OK);
        attend(b, &a, want);
        twin.configure("seed=1");
        assert_int_equal(plugin->open(0, &t, &b), OK);
        attend(b, &a, have);
        assert_memory_equal(want, have, AROUND);
        expect_nothing_left("widths");
    }
}

static void device_memory_is_out_of_reach(void **state)
{
    (void)state;
    const struct device_plugin *plugin;
    struct backend *b;
    char byte = 7;
    int null = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);
    twin.configure("memory=1M");
    assert_int_equal(device_plugin_load(&plugin), OK);
    assert_int_equal(plugin->open(0, &nothing, &b), OK);
    assert_int_equal(b->allocate(b, 2 << 20), ERR_NOMEM);
    assert_non_null(strstr(plugin->sentence(), "the device arena of 2.0 MiB does not fit into the 1.0 MiB that are free"));
    assert_int_equal(b->allocate(b, 8192), OK);
    assert_int_equal(read(zero, b->base, 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(b->write(b, b->base + 5, &byte, 1), OK);
    byte = 0;
    assert_int_equal(b->read(b, &byte, b->base + 5, 1), OK);
    assert_int_equal(byte, 7);
    assert_int_equal(b->check(b), OK);
    assert_int_equal(b->fill(b, b->base + 8192, 0, 1), OK); /* the first byte of a guard */
    assert_int_equal(b->check(b), ERR_CORRUPT);
    b->close(b);
    close(null);
    close(zero);
}

/* If any piece cannot be pinned, all other pieces are unpinned again. */
static void pinned_whole_or_not_at_all(void **state)
{
    (void)state;
    const struct device_plugin *plugin;
    struct backend *b;
    static char host[5 << 16] __attribute__((aligned(4096)));
    assert_int_equal(device_plugin_load(&plugin), OK);
    for (int k = 1; k <= 5; k++) {
        char words[32], want[128];
        snprintf(words, sizeof words, "pin=%d", 1 + k); /* the first registration is that of the bounce buffer */
        twin.configure(words);
        assert_int_equal(plugin->open(0, &nothing, &b), OK);
        snprintf(want, sizeof want, "%s", twin.left());
        assert_int_equal(b->pin(b, host, sizeof host), ERR_NOMEM);
        assert_non_null(strstr(plugin->sentence(), "320 KiB of host memory cannot be pinned in pieces of 64 KiB"));
        assert_string_equal(twin.left(), want);
        assert_int_equal(b->pin(b, host, sizeof host), OK);
        b->close(b);
        assert_string_equal(twin.left(), "");
    }
}

static void kinds_of_gpus(void **state)
{
    (void)state;
    static const int supported[] = {80, 86, 89, 90, 100, 120};
    const struct device_plugin *plugin;
    struct device_facts facts;
    char words[96];
    assert_int_equal(device_plugin_load(&plugin), OK);
    for (size_t i = 0; i < sizeof supported / sizeof *supported; i++) {
        snprintf(words, sizeof words, "name=a card,capability=%d,numa=3,memory=3G,taken=1G,context=300M", supported[i]);
        twin.configure(words);
        assert_int_equal(plugin->describe(0, &facts), OK);
        assert_int_equal(facts.capability, supported[i]);
        assert_int_equal(facts.numa, 3);
        assert_true(facts.memory == (int64_t)3 << 30 && facts.free == facts.memory - ((int64_t)1324 << 20));
    }
    const struct target other = {.threads = 1, .capability = 80, .processors = 1, .shared_bytes = 163 << 10};
    struct backend *b;
    twin.configure("name=a card,capability=90");
    assert_int_equal(plugin->open(0, &other, &b), ERR_INVALID);
    assert_non_null(strstr(plugin->sentence(), "GPU 0 has compute capability 9.0, 1 multiprocessors and "));
    assert_non_null(strstr(plugin->sentence(), "and the plan is for 8.0, 1 and 166912: take GPUs of one kind"));
    twin.configure("name=a card,capability=75");
    assert_int_equal(plugin->describe(0, &facts), ERR_INVALID);
    assert_non_null(strstr(plugin->sentence(), "GPU 0, a card, has compute capability 7.5; kernels need 8.0 or later"));
    twin.configure("");
}

/* The fake reports errors that CUDA lets pass. */
static void misuse_is_an_error(void **state)
{
    (void)state;
    const struct device_plugin *plugin;
    struct backend *b;
    static char host[3 << 16] __attribute__((aligned(4096)));
    twin.configure("");
    assert_int_equal(device_plugin_load(&plugin), OK);
    assert_int_equal(plugin->open(0, &nothing, &b), OK);
    assert_int_equal(b->allocate(b, sizeof host), OK);
    assert_int_equal(b->copy(b, LANE_H2D, b->base, host, 64), ERR_IO);
    assert_non_null(strstr(plugin->sentence(), "is not pinned"));
    assert_int_equal(b->pin(b, host, sizeof host), OK);
    assert_int_equal(b->copy(b, LANE_H2D, b->base, host, sizeof host),
                     OK); /* the copy is made in pieces, since it crosses registrations */
    assert_int_equal(b->await(b, LANE_COMPUTE, LANE_H2D, 9), ERR_IO);
    assert_non_null(strstr(plugin->sentence(), "never recorded"));
    assert_int_equal(b->wait(b, LANE_H2D, 9), ERR_IO);
    assert_int_equal(b->copy(b, LANE_D2H, host, b->base + 16384, sizeof host), ERR_IO);
    assert_non_null(strstr(plugin->sentence(), "leaves its device allocation"));
    assert_int_equal(b->join(b), OK);
    b->close(b);
    assert_non_null(strstr(twin.left(), " misused: host memory"));
    twin.configure("");
    expect_nothing_left("configured");
}

/* Runs with the n-th call failing: the run must print a sentence, end, and leave nothing behind. Returns 1 if it failed, or made
 * fewer calls. */
static int fails_well(const char *words, const char *expect, long n)
{
    struct outcome out;
    long calls;
    twin.configure(words);
    enum status st = run(&cells[1], DEVICE_CUDA, MODE_RUN, &out, &calls);
    if (st != OK && (!status_message()[0] || !strstr(status_message(), expect) || strchr(status_message(), '\n')))
        fail_msg("%s: \"%s\"", words, status_message());
    expect_nothing_left(words);
    return st != OK || calls < n;
}

static void each_failing_call_is_one_sentence(void **state)
{
    (void)state;
    static const int errors[] = {1, 2, 700};
    static const char *const expect[] = {"as the test wants it", "", "cudaErrorIllegalAddress"};
    struct outcome out;
    long calls;
    int runs = 0, caught = 0;
    twin.configure("");
    assert_int_equal(run(&cells[1], DEVICE_CUDA, MODE_RUN, &out, &calls), OK);
    /* tries all of the first calls, which open the device, and then fewer: a thousand events are created in the same way, and
     * steps are alike */
    for (long n = 1, step = 1; n < calls; n += step, runs++) {
        char words[64];
        snprintf(words, sizeof words, "seed=%d,fail=%ld:%d", runs % 4, n, errors[runs % 3]);
        caught += fails_well(words, expect[runs % 3], n);
        step = n < 12 || extent_is_long() ? 1 : calls / extent(8, 36, 36);
    }
    if (caught < runs) /* the number of calls depends on when things end, so it differs from run to run */
        fail_msg("of %d planted failures %d had no consequence", runs, runs - caught);
}

/* Reads the next name in the file that begins with cuda and is followed by a parenthesis. Returns 0 at the end. */
static int next_call(FILE *f, char name[64])
{
    int n = 0, c;
    while ((c = fgetc(f)) != EOF) {
        if (isalnum(c) && n < 63) {
            name[n++] = (char)c;
            continue;
        }
        name[n] = 0;
        if (c == '(' && strncmp(name, "cuda", 4) == 0 && isupper((unsigned char)name[4]))
            return 1;
        n = 0;
    }
    return 0;
}

static int is_one_of(const char *name, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return 1;
    return 0;
}

/* Each CUDA function that the host sources call fails at its first call and at later calls. */
static void each_function_fails_once(void **state)
{
    (void)state;
    static const char *const files[] = {"device", "streams"};
    static const char *const undoing[] = {"cudaFree", "cudaFreeHost", "cudaHostUnregister", "cudaEventDestroy",
                                          "cudaStreamDestroy"}; /* functions after whose failure nothing can be reported */
    static const char *const of_errors[] = {"cudaGetLastError", "cudaGetErrorString", "cudaGetErrorName",
                                            "cudaDriverGetVersion" /* not a call: its name stands in a message */,
                                            "cudaEventQuery" /* only with ranks */};
    char done[64][64], name[64], path[512], words[128];
    int n = 0;
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/src/device/cuda/%s.c", getenv("LTRAIN_SOURCE_ROOT"), files[k]);
        FILE *f = fopen(path, "re");
        assert_non_null(f);
        while (next_call(f, name)) {
            int seen = is_one_of(name, of_errors, 5);
            for (int i = 0; i < n; i++)
                seen |= strcmp(done[i], name) == 0;
            if (seen)
                continue;
            strcpy(done[n++], name);
            const int undoes = is_one_of(name, undoing, 5);
            snprintf(words, sizeof words, "seed=%d,in=%s,fail=1:%d", n % 2, name, n % 3 ? 1 : 700);
            if (fails_well(words, undoes || n % 3 ? "" : "cudaErrorIllegalAddress", 0) == undoes)
                fail_msg("%s: %s", words, undoes ? status_message() : "had no consequence");
        }
        fclose(f);
    }
    assert_true(n >= 20);
}

static void a_dead_device_is_said(void **state)
{
    (void)state;
    for (int n = 40; n < 400; n += (int)extent(150, 60, 7)) {
        char words[64];
        snprintf(words, sizeof words, "seed=%d,dies=%d:719", n % 2, n);
        assert_true(fails_well(words, "cudaErrorLaunchFailure", 0));
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The submitter, reapers and host lanes sleep while a slow device is working. */
static void nobody_spins(void **state)
{
    (void)state;
    struct outcome out;
    twin.configure("seed=1,lag=900");
    const double cpu = cpu_seconds();
    const int64_t began = clock_ns();
    assert_int_equal(run(&cells[3], DEVICE_CUDA, MODE_RUN, &out, NULL), OK);
    const double took = (double)(clock_ns() - began) * 1e-9, used = cpu_seconds() - cpu, slept = (double)twin.executed() * 900e-6;
    if (used > took - 0.75 * slept)
        fail_msg("%.2f s of %.2f s were computed, though the device slept for %.2f s of them", used, took, slept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders_never_change_a_bit),
                                       cmocka_unit_test(chaos_runs_there),
                                       cmocka_unit_test(values_of_another_width),
                                       cmocka_unit_test(device_memory_is_out_of_reach),
                                       cmocka_unit_test(pinned_whole_or_not_at_all),
                                       cmocka_unit_test(kinds_of_gpus),
                                       cmocka_unit_test(misuse_is_an_error),
                                       cmocka_unit_test(each_failing_call_is_one_sentence),
                                       cmocka_unit_test(each_function_fails_once),
                                       cmocka_unit_test(a_dead_device_is_said),
                                       cmocka_unit_test(nobody_spins)};
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
