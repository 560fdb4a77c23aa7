/* Tests the plugin for real GPUs on the fake runtime, with its own kernels run by the simulator and a fake cuBLASLt. Results of
 * golden models are within the tolerances for bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cudasim/fake/fake.h"
#include "device/plugin.h"
#include "engine/cuda_plugin.h"
#include "engine/cuda_target.h"
#include "engine/cuda_walk.h"
#include "engine/golden_compare.h"
#include "engine/rig.h"
#include "extent.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MODELS, EXPERTS: smallest expected numbers of cases in tests/golden, in tests/golden/moe */
enum { PROCESSORS = 4, STEPS = 3, MODELS = 40, EXPERTS = 16 };

int device_plugin_expected(void)
{
    return 1;
}

/* Loads the plugin, which is a part of this program. */
enum status device_plugin_load(const struct device_plugin **out)
{
    *out = ltrain_device_plugin();
    return OK;
}

static void near(const char *what, int step, double have, double want, double mark)
{
    if (!(fabs(have - want) <= mark * fabs(want)))
        fail_msg("%s of step %d: %.9g, golden %.9g, apart by %.2g, and %.2g is allowed", what, step, have, want,
                 fabs(have - want) / fabs(want), mark);
}

static void everything_nvme(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
    s->plan.alpha = 0;
}

static void steps_are_golden(struct rig *r, struct golden *g, const char *name, int steps)
{
    const struct golden_marks marks = golden_bf16_marks(name);
    for (int step = 0; step < steps; step++) {
        double loss, norm;
        if (rig_step(r, &g->sequence, 1, &loss, &norm) != OK)
            fail_msg("%s: %s", g->path, status_message());
        near("loss", step, loss, g->loss[step], marks.loss);
        near("norm", step, norm, g->norm[step], marks.norm);
        if (step > 0)
            continue;
        const double worst = golden_compare(r, g->file, STATE_GRAD, "grad", marks.gradient);
        print_message("%s, sm_%d: gradients differ by %.2g\n", name, r->gpu.capability, worst);
        assert_true(worst <= marks.gradient);
    }
    assert_int_equal(rig_flush(r), OK);
    if (steps == GOLDEN_STEPS)
        assert_true(golden_compare(r, g->file, STATE_MASTER, "step5", marks.parameters) <= marks.parameters);
}

static uint64_t chosen;    /* algorithms that cuBLASLt chose in the last run, as in the numerics key */
static int fast;           /* 1: --deterministic no */
static enum dtype moments; /* type of --optim-dtype */

/* Configures the fake with the seed and `more`, and starts a run of the case. */
static enum status begin(struct rig *r, struct golden *g, const char *name, int capability, void (*change)(struct settings *),
                         const char *more)
{
    struct model *model;
    char words[160];
    snprintf(words, sizeof words, "seed=%d,name=sim,capability=%d,processors=%d%s", change ? 3 : 2, capability, PROCESSORS, more);
    fake_cuda_configure(words);
    assert_int_equal(golden_open(name, g), OK);
    rig_defaults(r, g->seq_len);
    r->gpu = cuda_target(capability, PROCESSORS, 1);
    r->gpu.fast = fast;
    r->settings.gpu = AUTO;
    r->settings.plan.device = DEVICE_CUDA;
    r->settings.plan.dtype = BF16;
    r->settings.plan.threads = 1;
    r->settings.plan.optim_dtype = moments;
    if (moments == I8)
        r->settings.plan.group = 1024; /* whole blocks only */
    if (change)
        change(&r->settings);
    TRY(golden_model(g, &model));
    TRY(rig_start(r, model));
    return golden_load(g, r->session);
}

/* Takes the steps and returns a digest of all state. */
static uint64_t run(const char *name, int capability, int steps, void (*change)(struct settings *))
{
    struct golden g;
    struct rig r;
    uint64_t digest;
    if (begin(&r, &g, name, capability, change, "") != OK)
        fail_msg("%s: %s", name, status_message());
    steps_are_golden(&r, &g, name, steps);
    assert_int_equal(rig_digest(&r, &digest), OK);
    assert_int_equal(r.session->backend->digest(r.session->backend, &chosen), OK);
    rig_stop(&r);
    golden_close(&g);
    assert_true(fake_cuda_executed() > 0);
    if (fake_cuda_left()[0])
        fail_msg("%s: %s", name, fake_cuda_left());
    return digest;
}

/* Compares a resident run with a run on drives: placement changes neither bits nor the numerics key. */
static void case_on(const char *name, int capability)
{
    const int steps = extent(STEPS, STEPS, GOLDEN_STEPS);
    const uint64_t resident = run(name, capability, steps, NULL), algorithms = chosen;
    assert_true(run(name, capability, steps, everything_nvme) == resident);
    assert_true(chosen == algorithms && chosen != 0);
}

static void llama_on_ampere(void **state)
{
    (void)state;
    case_on("llama-gqa", 80);
}

static void llama_on_hopper(void **state)
{
    (void)state;
    case_on("llama-gqa", 90);
}

static void gpt2_on_ampere(void **state)
{
    (void)state;
    case_on("gpt2", 80);
}

static void gpt2_on_hopper(void **state)
{
    (void)state;
    case_on("gpt2", 90);
}

static void adapters_on_ampere(void **state)
{
    (void)state;
    case_on("lora-phi3", 80);
}

/* The second step's loss depends on parameters updated from exact moments, the third step's loss on parameters updated from
 * quantised ones. */
static void moments_in_int8(void **state)
{
    (void)state;
    moments = I8;
    const uint64_t resident = run("llama-gqa", 90, STEPS, NULL);
    assert_true(run("llama-gqa", 90, STEPS, everything_nvme) == resident);
    moments = F32;
}

/* With --deterministic no, backward attention on sm_80 loads fewer kernels. On Hopper the same kernels run in both cases. */
static void backward_in_any_order(void **state)
{
    (void)state;
    static const int capabilities[] = {80, 90};
    for (int i = 0; i < 2; i++) {
        run("llama-gqa", capabilities[i], 1, NULL);
        const long ordered = fake_cuda_loaded();
        fast = 1;
        run("llama-gqa", capabilities[i], 1, NULL);
        fast = 0;
        print_message("sm_%d: %ld kernels, %ld in order\n", capabilities[i], fake_cuda_loaded(), ordered);
        assert_true(capabilities[i] == 80 ? fake_cuda_loaded() < ordered : fake_cuda_loaded() == ordered);
    }
}

/* Lets one of the runtime's functions fail, one call in each run, from the `first` such call to the `last`. The run ends and
 * names the call. Calls by kernels' files stand among calls of the same name by the device's file. */
static int fails_by_name(const char *function, const char *said, int first, int last)
{
    int failed = 0;
    for (int n = first; n <= last; n++) {
        struct golden g;
        struct rig r;
        char words[80];
        double loss, norm;
        snprintf(words, sizeof words, ",in=%s,fail=%d:1", function, n);
        enum status st = begin(&r, &g, "llama-gqa", 90, NULL, words);
        if (st == OK)
            st = rig_step(&r, &g.sequence, 1, &loss, &norm);
        if (st != OK && (!strstr(status_message(), said) || strchr(status_message(), '\n')))
            fail_msg("call %d of %s fails: status %d, \"%s\"", n, function, st, status_message());
        failed += st != OK;
        rig_stop(&r);
        golden_close(&g);
        assert_string_equal(fake_cuda_left(), "");
    }
    return failed;
}

/* Fails launches, the calls of the runtime for launches, and the calls of kernels' entries. Runs before all other tests, since
 * the driver's entry is asked for once. */
static void calls_of_kernels_fail(void **state)
{
    (void)state;
    assert_int_equal(fails_by_name("cudaGetDriverEntryPointByVersion", "cudaGetDriverEntryPointByVersion", 1, 1), 1);
    assert_int_equal(fails_by_name("cudaFuncSetAttribute", "cudaFuncSetAttribute", 1, 1), 1);
    assert_int_equal(fails_by_name("cudaGetDevice", "cudaGetDevice", 1, 2), 2);
    assert_int_equal(fails_by_name("cudaDeviceGetAttribute", "cudaDeviceGetAttribute", 2, 3), 2);
    assert_int_equal(fails_by_name("enqueue", "kernel launch", 1, 8), 8);
    const int last = extent_is_long() ? 200 : 4;
    assert_int_equal(fails_by_name("cudaMemsetAsync", "cudaMemsetAsync", 1, last), last);
}

/* Tests kinds of layers that Llama does not have, with one step on one GPU each and all state on drives: soft caps; windows on
 * some layers; four norms of 1 + w; GeGLU; scaled embeddings; norms of each head, also with different weights; norms of all heads
 * together; norms only behind the blocks; factors everywhere; partly rotated heads, in neighbouring pairs; sinks and a clamped
 * gate; gates of heads' results; experts of four kinds; linear attention of three. */
static void other_layers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int capability;
    } cases[] = {{"qwen3", 90},         {"gemma3", 80},         {"gemma2", 90},
                 {"olmo2", 86},         {"granite", 90},        {"glm4", 89},
                 {"cohere-norms", 90},  {"gpt-oss-one", 90},    {"gemma4", 90},
                 {"qwen3_5", 90},       {"moe/qwen3-moe", 90},  {"moe/qwen2-moe", 80},
                 {"moe/gpt-oss", 86},   {"moe/glm4-moe", 90},   {"hybrid/qwen3_5", 80},
                 {"hybrid/bamba", 90},  {"moe/gemma4-moe", 80}, {"hybrid/kimi-linear", 90},
                 {"hybrid/minimax", 86}};
    for (size_t i = 0; !extent_is_long() && i < sizeof cases / sizeof *cases; i++)
        run(cases[i].name, cases[i].capability, 1, everything_nvme);
}

/* Runs the golden cases of a directory below tests/golden on three capabilities, and returns how many runs there were. */
static int run_directory(const char *directory)
{
    static const int capabilities[] = {80, 86, 90};
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    struct dirent **entries;
    char path[600], name[300];
    int tried = 0;
    snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", directory);
    const int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s%s", directory, entries[i]->d_name);
        snprintf(path, sizeof path, "%s/tests/golden/%s/golden.json", root ? root : ".", name);
        for (int k = 0; access(path, R_OK) == 0 && k < 3; k++, tried++)
            case_on(name, capabilities[k]);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return tried;
}

/* With LTRAIN_LONG, runs every case of tests/golden, with adapters, quantised bases, dropout and experts, and again on a GPU with
 * 99 KiB of shared memory. */
static void all_models(void **state)
{
    (void)state;
    if (!extent_is_long())
        return;
    assert_true(run_directory("") >= 3 * MODELS);
    assert_true(run_directory("moe/") >= 3 * EXPERTS);
    static const char *const hybrids[] = {"hybrid/qwen3_5", "hybrid/qwen3_5_moe", "hybrid/bamba", "hybrid/kimi-linear"};
    for (int i = 0; i < 12; i++) /* granite: the gradient of dt_bias (norm 5e-5) differs by 4% */
        case_on(hybrids[i / 3], (const int[]){80, 86, 90}[i % 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_of_kernels_fail), cmocka_unit_test(llama_on_ampere),
                                       cmocka_unit_test(llama_on_hopper),       cmocka_unit_test(gpt2_on_ampere),
                                       cmocka_unit_test(gpt2_on_hopper),        cmocka_unit_test(adapters_on_ampere),
                                       cmocka_unit_test(moments_in_int8),       cmocka_unit_test(backward_in_any_order),
                                       cmocka_unit_test(other_layers),          cmocka_unit_test(all_models),
                                       cmocka_unit_test(walk_presets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
