/* Runs every distinct product of a preset's program on this machine's GPU, for tools/gpu-check.sh: `engine_products_gpu PRESET
 * TOKENS`. Compares samples of the result with fp64, requires the same bits when a product is repeated and when operands are at
 * other addresses, and prints rates. Exit status 77: no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/num.h"
#include "base/mix.h"
#include "device/plugin.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "ops/gemm.h"
#include "plan/plan.h"
#include "plan_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, SAMPLES = 48, BLOCKS = 16 };
#define SHIFT 4096
/* Allowed error, relative to the result plus the root mean square of the sum: the rounding of bf16, and of an fp32 sum of k
 * products. */
#define APART 6e-3

static struct backend *b;
static struct target target;
static const char *preset;
static int64_t tokens;
static char *host; /* random numbers, laid out as at the start of the arena: first bf16, then fp32 */
static int failures;
static int64_t half, bytes, moved; /* moved: distance of the numbers from the start of the arena */

static enum status says(enum status st)
{
    return backend_status(b, st);
}

#define MUST(call)                            \
    do {                                      \
        if ((call) != OK)                     \
            fail_msg("%s", status_message()); \
    } while (0)

/* Draws numbers between -1 and 1. */
static void draw_numbers(void)
{
    for (int64_t i = 0; i < half / 2; i++)
        ((bf16 *)(void *)host)[i] = bf16_from_float((float)((int64_t)(mix((uint64_t)i, 0) >> 40) - (1 << 23)) / (1 << 23));
    for (int64_t i = 0; i < half / 4; i++)
        ((float *)(void *)(host + half))[i] = (float)((int64_t)(mix((uint64_t)i ^ 77, 0) >> 40) - (1 << 23)) / (1 << 23);
}

static void lay_down(int64_t at)
{
    moved = at;
    MUST(says(b->write(b, b->base + at, host, 2 * half)));
}

/* Returns the start of an operand's numbers: each operand uses numbers of its type from another offset on. */
static int64_t start_of(int64_t elements, int32_t type, int which)
{
    const int64_t size = dtype_size((enum dtype)type), room = half - elements * size;
    return room < 0 ? -1 : (type == F32 ? half : 0) + min_i64(room, which * ((int64_t)8 << 20)) / SHIFT * SHIFT;
}

static double number_at(int64_t start, int64_t index, int32_t type)
{
    const char *at = host + start;
    return type == F32 ? ((const float *)(const void *)at)[index] : bf16_to_float(((const bf16 *)(const void *)at)[index]);
}

struct outcome {
    double seconds, worst; /* seconds < 0: there was not enough memory */
    int refused;
    uint64_t hash;
};

static void run(const struct op_attrs *a, struct outcome *out)
{
    const struct gemm_shape s = gemm_shape_of(a);
    const int64_t c_bytes = s.m * s.ldc * dtype_size((enum dtype)s.c_type), work = target.workspace(&target, OP_GEMM, a, 0);
    const int64_t at[2] = {start_of((s.ta ? s.k : s.m) * s.lda, s.a_type, 0), start_of((s.tb ? s.n : s.k) * s.ldb, s.b_type, 1)};
    char *c = b->base + 2 * half + SHIFT + moved, *scratch = c + round_up(c_bytes, SHIFT) + SHIFT;
    void *arg[OP_MAX_ARGS] = {c, b->base + moved + at[0], b->base + moved + at[1], scratch};
    if (at[0] < 0 || at[1] < 0 || scratch + work > b->base + bytes) {
        out->seconds = -1;
        return;
    }
    out->refused = says(b->prepare(b, OP_GEMM, a, arg)) != OK;
    if (out->refused)
        return;
    MUST(says(b->fill(b, c, s.accumulate ? 0 : 0xff, c_bytes)));
    MUST(says(b->record(b, LANE_COMPUTE, BACKEND_BEGAN)));
    MUST(says(b->kernels[OP_GEMM](a, arg, b->stream[LANE_COMPUTE])));
    MUST(says(b->record(b, LANE_COMPUTE, 0)));
    MUST(says(b->wait(b, LANE_COMPUTE, 0)));
    MUST(says(b->elapsed(b, LANE_COMPUTE, 0, &out->seconds)));
    static char block[1 << 16];
    out->hash = out->worst = 0;
    for (int64_t i = 0; i < BLOCKS; i++) {
        const int64_t from = c_bytes / BLOCKS * i, n = min_i64((int64_t)sizeof block, c_bytes - from);
        MUST(says(b->read(b, block, c + from, n)));
        for (int64_t k = 0; k + 8 <= n; k += 8) {
            uint64_t word;
            memcpy(&word, block + k, 8);
            out->hash = mix(out->hash ^ word, 0);
        }
    }
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t row = (int64_t)(mix((uint64_t)i, 0) % (uint64_t)s.m),
                      col = (int64_t)(mix((uint64_t)i + 99, 0) % (uint64_t)s.n);
        double want = 0;
        char raw[4];
        for (int64_t k = 0; k < s.k; k++)
            want += (double)(float)number_at(at[0], s.ta ? k * s.lda + row : row * s.lda + k, s.a_type) *
                    (double)(float)number_at(at[1], s.tb ? col * s.ldb + k : k * s.ldb + col, s.b_type);
        MUST(says(b->read(b, raw, c + (row * s.ldc + col) * dtype_size((enum dtype)s.c_type), dtype_size((enum dtype)s.c_type))));
        const double have = s.c_type == F32 ? *(float *)(void *)raw : bf16_to_float(*(bf16 *)(void *)raw);
        const double off =
            /* root mean square of a sum of k products of numbers with variance 1/3 */
            fabs(have - want) / (fabs(want) + sqrt((double)s.k / 9));
        out->worst = off > out->worst || isnan(off) ? off : out->worst;
    }
}

static void describe(const struct op_attrs *a, char what[160])
{
    const struct gemm_shape s = gemm_shape_of(a);
    snprintf(what, 160, "%lld x %lld x %lld%s%s, %s %s -> %s%s", (long long)s.m, (long long)s.n, (long long)s.k, s.ta ? " T" : "",
             s.tb ? " .T" : "", dtype_name((enum dtype)s.a_type), dtype_name((enum dtype)s.b_type), s.accumulate ? "+" : "",
             dtype_name((enum dtype)s.c_type));
}

/* Reports a wrong product and lets the test go on with the others. */
static void wrong(const char *what, const char *why)
{
    print_message("NOT OK: %s: %s\n", what, why);
    failures++;
}

/* Checks a product twice at the first place. Returns the hash of its bits. */
static uint64_t check_call(const struct op_attrs *a)
{
    const struct gemm_shape s = gemm_shape_of(a);
    struct outcome first = {0}, second = {0};
    char what[160];
    describe(a, what);
    run(a, &first);
    if (first.seconds < 0) {
        print_message("%s: too large for %lld MiB\n", what, (long long)bytes >> 20);
        return 0;
    }
    if (first.refused) {
        wrong(what, status_message());
        return 0;
    }
    run(a, &second);
    print_message("%s: %.0f TFLOP/s, %.2g apart\n", what,
                  2e-12 * (double)s.m * (double)s.n * (double)s.k / (second.seconds + 1e-9), first.worst);
    if (!(first.worst <= APART))
        wrong(what, "it is too far from fp64");
    if (first.hash != second.hash)
        wrong(what, "other bits the second time");
    return first.hash;
}

static void check_elsewhere(const struct op_attrs *a, uint64_t hash)
{
    struct outcome moved_to = {0};
    char what[160];
    describe(a, what);
    run(a, &moved_to);
    if (moved_to.hash != hash)
        wrong(what, "other bits at another address");
}

static void distinct_products(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {(int64_t)1 << 45, (int64_t)1 << 45, (int64_t)1 << 45};
    static struct op_attrs seen[MOST];
    static uint64_t hash[MOST];
    struct model_config config;
    struct plan_request request;
    struct hardware h;
    struct model *m;
    struct plan *plan;
    int n = 0;
    MUST(model_preset(preset, &config));
    config.positions = tokens;
    MUST(model_create(&config, NULL, 0, &m));
    MUST(hardware_preset("h100", &h));
    MUST(plan_request_defaults(&request, tokens));
    request.target = &target;
    request.hardware = &h;
    request.device = DEVICE_CUDA;
    request.dtype = BF16;
    request.params = request.grads = request.optim = request.acts = OFFLOAD_CPU;
    request.effort = EFFORT_QUICK;
    for (int d = 0; d < MESH_DIMS; d++)
        request.mesh.degree[d] = 1;
    MUST(plan_create(m, &request, limit, &plan));
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    for (int i = 0; i < p->n_instrs; i++) {
        const struct op_attrs *a = &p->calls[p->instrs[i].call].attrs;
        int k = 0;
        while (p->instrs[i].op == OP_GEMM && k < n && memcmp(&seen[k], a, sizeof *a) != 0)
            k++;
        if (p->instrs[i].op != OP_GEMM || k < n || n == MOST)
            continue;
        seen[n] = *a;
        hash[n++] = check_call(a);
    }
    lay_down(SHIFT / 2);
    for (int k = 0; k < n; k++)
        if (hash[k])
            check_elsewhere(&seen[k], hash[k]);
    print_message("%s %lld: %d products\n", preset, (long long)tokens, n);
    assert_true(n > 5);
    assert_int_equal(failures, 0);
    plan_destroy(plan);
    model_destroy(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(distinct_products)};
    const struct device_plugin *plugin;
    struct device_facts facts;
    int n;
    preset = argc > 1 ? argv[1] : "tiny";
    tokens = argc > 2 ? atoll(argv[2]) : 256;
    if (!device_plugin_expected() || device_plugin_load(&plugin) != OK) {
        printf("skipped: no GPU: %s\n", status_message());
        return 77;
    }
    if (plugin->count(&n) != OK || plugin->describe(0, &facts) != OK)
        goto refused;
    target = facts.capability > 0 ? cuda_target(facts.capability, facts.processors, 1) : backend_cpu_target(1);
    bytes = facts.capability > 0 ? min_i64((int64_t)12 << 30, facts.free / 10 * 8) : (int64_t)96 << 20;
    half = facts.capability > 0 ? (int64_t)1 << 30 : (int64_t)8 << 20;
    host = malloc((size_t)(2 * half));
    if (!host || plugin->open(0, &target, &b) != OK || b->allocate(b, bytes) != OK)
        goto refused;
    draw_numbers();
    lay_down(0);
    n = cmocka_run_group_tests(tests, NULL, NULL);
    b->close(b);
    free(host);
    return n;
refused:
    printf("%s\n", plugin->sentence());
    return 1;
}
