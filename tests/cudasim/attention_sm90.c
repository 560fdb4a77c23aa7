/* The Hopper attention kernels, run by the simulator with its checker on, against the fp64 oracle and the portable CPU twin.
 *
 * What the kernels must not lose: tiles of one row, of a row less and more than a tile, more key tiles than pipeline stages, blocks that
 * take several tiles (few processors), head dimensions padded to 64, 128 and 256, every mask. */
#include "attention/cuda_kernels.h"
#include "cudasim.h"
#include "../attention/harness.h"

#include <cuda_runtime.h>
#include <omp.h>

/* Relative L2 errors. P (and dS) and the output o are each rounded to bf16, uniformly within half a unit: between 2^-9 / sqrt(3) and
 * 2^-8 / sqrt(3) = 2.3e-3 of a value, the same of a sum of such terms with random signs. o has two such errors (2.3e-3 sqrt(2)), dv one;
 * dq and dk have one in dS, whose terms p dp and p delta may cancel by a factor of up to sqrt(2). lse is fp32 throughout: 1e-6 as on the CPU, and
 * 2 ulp of ex2 per term. */
#define TOLERANCE_O 3.3e-3
#define TOLERANCE_LSE 1e-6
#define TOLERANCE_DV 2.3e-3
#define TOLERANCE_DQK 3.3e-3

static double cancellation = 1; /* of the terms of dq and dk, beyond the oracle's measure */
static struct attn_cuda device = {90, 3, 227 * 1024, ATTN_DETERMINISTIC};

static int64_t bytes_of(enum op_kind kind, const struct op_attrs *a, int i)
{
    const int64_t q = a->attn.sq * a->attn.hq * a->attn.head_dim, k = a->attn.sk * a->attn.hk * a->attn.head_dim;
    const int64_t lse = a->attn.sq * a->attn.hq * 4, row = a->attn.sq * 4;
    const int64_t forward[] = {q * 2, lse, q * 2, k * 2, k * 2, row, row};
    const int64_t backward[] = {q * 4, k * 4, k * 4, q * 2, k * 2, k * 2, q * 2, lse, q * 2, row, row};
    return kind == OP_ATTN_FWD ? forward[i] : backward[i];
}

/* A CPU kernel's call on the simulated device: every argument copied to an allocation of exactly its size and back, the workspace (last)
 * left as cudaMalloc gives it: NaN. */
static void on_device(enum op_kind kind, const struct op_attrs *attrs, void *const *arg)
{
    const int n = kind == OP_ATTN_FWD ? 8 : 12, outputs = kind == OP_ATTN_FWD ? 2 : 3;
    void *there[12];
    for (int i = 0; i < n; i++) {
        int64_t bytes = i < n - 1 ? bytes_of(kind, attrs, i) : attn_sm90_workspace_bytes(kind, attrs, &device);
        assert_int_equal(cudaMalloc(&there[i], (size_t)bytes), cudaSuccess);
        if (i < n - 1 && (i >= outputs || attrs->attn.accumulate))
            assert_int_equal(cudaMemcpy(there[i], arg[i], (size_t)bytes, cudaMemcpyHostToDevice), cudaSuccess);
    }
    assert_true(attn_sm90_supports(kind, attrs, &device));
    enum status st = kind == OP_ATTN_FWD ? attn_sm90_forward(attrs, there, &device, NULL) : attn_sm90_backward(attrs, there, &device, NULL);
    if (st != OK || *sim_report())
        fail_msg("%s %s", status_message(), sim_report());
    for (int i = 0; i < outputs; i++)
        assert_int_equal(cudaMemcpy(arg[i], there[i], (size_t)bytes_of(kind, attrs, i), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < n; i++)
        cudaFree(there[i]);
}

static void forward_on_device(const struct op_attrs *attrs, void *const *arg)
{
    on_device(OP_ATTN_FWD, attrs, arg);
}

static void backward_on_device(const struct op_attrs *attrs, void *const *arg)
{
    on_device(OP_ATTN_BWD, attrs, arg);
}

static const struct kernels sm90 = {"sm90", forward_on_device, backward_on_device, attn_portable_workspace};

static void check_forward(const struct shape *s, const struct problem *p)
{
    struct call c = forward_call(p, &sm90, 1, 0), twin = forward_call(p, &sm90, omp_get_max_threads(), 0);
    call_run(&c, sm90.forward, &p->attrs);
    check_error("o", "sm90", s, error_of(c.b[0].data, BF16, p->x.o, p->nq), TOLERANCE_O);
    check_error("lse", "sm90", s, error_of(c.b[1].data, F32, p->x.lse, p->nl), TOLERANCE_LSE);
    call_run(&twin, attn_portable_forward, &p->attrs);
    double *o = doubles(p->nq);
    for (int64_t i = 0; i < p->nq; i++)
        o[i] = bf16_to_float(((bf16 *)(void *)twin.b[0].data)[i]);
    check_error("o beside the CPU twin", "sm90", s, error_of(c.b[0].data, BF16, o, p->nq), TOLERANCE_O);
    free(o);
    call_free(&c);
    call_free(&twin);
}

static void check_backward(const struct shape *s, const struct problem *p, enum attn_cuda_mode mode)
{
    static const char *const names[] = {"sm90 deterministic", "sm90 fast"};
    device.mode = mode;
    struct call c = backward_call(p, &sm90, 1, 0);
    for (int64_t i = 0; i < p->nk; i++) /* the harness starts dk and dv at 1 where they are added to */
        p->x.dk[i] += p->attrs.attn.accumulate, p->x.dv[i] += p->attrs.attn.accumulate;
    call_run(&c, sm90.backward, &p->attrs);
    check_error("dq", names[mode], s, error_above(p->x.dq_terms, c.b[0].data, F32, p->x.dq, p->nq), TOLERANCE_DQK * cancellation);
    check_error("dk", names[mode], s, error_above(p->x.dk_terms, c.b[1].data, F32, p->x.dk, p->nk), TOLERANCE_DQK * cancellation);
    check_error("dv", names[mode], s, error_of(c.b[2].data, F32, p->x.dv, p->nk), TOLERANCE_DV);
    for (int64_t i = 0; i < p->nk; i++)
        p->x.dk[i] -= p->attrs.attn.accumulate, p->x.dv[i] -= p->attrs.attn.accumulate;
    call_free(&c);
}

static unsigned seeds = 1;
static int checks = 1; /* 0: shapes whose code paths a checked shape runs too */

static void check_problem(const struct shape *s, struct problem *p)
{
    sim_reset(seeds++);
    sim_checks(checks);
    p->attrs.attn.accumulate = seeds % 3 == 0;
    check_forward(s, p);
    if (s->d <= 128) {
        round_oracle(p);
        oracle_backward(&p->attrs, &p->x);
        check_backward(s, p, ATTN_DETERMINISTIC);
        check_backward(s, p, ATTN_FAST);
    }
}

static void check_shape(struct shape s)
{
    s.dtype = BF16;
    struct problem p = problem_make(&s);
    check_problem(&s, &p);
    problem_free(&p);
}

/* The edges of 64, 128 and 192 row tiles. */
static void sizes_causal(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 321};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int32_t d = 64; d <= 128; d += 64)
            check_shape((struct shape){.sq = sizes[i], .sk = sizes[i], .hq = 1, .hk = 1, .d = d, .mask = CAUSAL, .gain = 1});
}

static void sizes_rectangular(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{1, 300}, {300, 1}, {130, 259}, {259, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_shape((struct shape){.sq = sizes[i][0], .sk = sizes[i][1], .hq = 2, .hk = 1, .d = i % 2 ? 128 : 64, .mask = FULL, .gain = 1});
}

/* Five to eleven key tiles through two stages, one to three blocks for all tiles. */
static void many_tiles(void **state)
{
    (void)state;
    device.processors = 1;
    check_shape((struct shape){.sq = 650, .sk = 650, .hq = 2, .hk = 1, .d = 128, .mask = CAUSAL, .gain = 1});
    device.processors = 3;
    check_shape((struct shape){.sq = 700, .sk = 700, .hq = 1, .hk = 1, .d = 64, .mask = FULL, .gain = 1});
    check_shape((struct shape){.sq = 330, .sk = 330, .hq = 1, .hk = 1, .d = 256, .mask = CAUSAL, .gain = 1});
}

static void head_dims(void **state)
{
    (void)state;
    const int32_t dims[] = {32, 40, 72, 80, 96, 104, 120, 136, 192, 248, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        checks = dims[i] % 96 == 0;
        check_shape((struct shape){.sq = 140, .sk = 140, .hq = 2, .hk = 2, .d = dims[i], .mask = CAUSAL, .gain = 1});
    }
}

static void grouped_heads(void **state)
{
    (void)state;
    checks = 0;
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 4, .hk = 4, .d = 64, .mask = CAUSAL, .gain = 1});
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 4, .hk = 1, .d = 128, .mask = CAUSAL, .gain = 1});
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 8, .hk = 1, .d = 64, .mask = CAUSAL, .gain = 1});
    check_shape((struct shape){.sq = 150, .sk = 150, .hq = 16, .hk = 2, .d = 64, .mask = CAUSAL, .gain = 1});
}

static void masks(void **state)
{
    (void)state;
    for (int m = DOCUMENTS; m <= EMPTY_ALL; m++)
        for (int32_t d = 64; d <= 128; d += 64)
            check_shape((struct shape){.sq = 410, .sk = 410, .hq = 1, .hk = 1, .d = d, .mask = (enum mask_kind)m, .gain = 1});
    for (int m = FULL; m <= EMPTY_ALL; m++)
        check_shape((struct shape){.sq = 270, .sk = 270, .hq = 1, .hk = 1, .d = 256, .mask = (enum mask_kind)m, .gain = 1});
}

/* Ring blocks: keys before, across and behind the queries. */
static void ring_blocks(void **state)
{
    (void)state;
    checks = 0;
    const int64_t offsets[][2] = {{500, 0}, {500, 370}, {500, 499}, {300, 520}, {0, 900}, {3000000, 2999800}};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int m = CAUSAL; m <= WINDOW; m++)
            check_shape((struct shape){.sq = 200, .sk = 333, .q0 = offsets[i][0], .k0 = offsets[i][1], .hq = 1, .hk = 1,
                .d = i % 2 ? 128 : 64, .mask = (enum mask_kind)m, .gain = 1});
}

/* Scores of about +-60: the running maximum matters. */
static void large_scores(void **state)
{
    (void)state;
    checks = 0;
    check_shape((struct shape){.sq = 300, .sk = 300, .hq = 1, .hk = 1, .d = 64, .mask = CAUSAL, .gain = 40});
    check_shape((struct shape){.sq = 300, .sk = 300, .hq = 1, .hk = 1, .d = 128, .mask = CAUSAL, .gain = 40});
}

/* All scores about -120: exp(-lse) overflows, so that a key or query beyond the ends, whose score is 0, would give infinities. */
static void negative_scores(void **state)
{
    (void)state;
    for (int32_t d = 64; d <= 128; d += 64) {
        const struct shape s = {.sq = 190, .sk = 70, .hq = 1, .hk = 1, .d = d, .mask = FULL, .dtype = BF16, .gain = 1};
        struct problem p = problem_make(&s);
        const double size = sqrt(120 / sqrt(d));
        for (int64_t i = 0; i < p.nq; i++)
            p.x.q[i] = stored(size + 0.1 * uniform(), BF16);
        for (int64_t i = 0; i < p.nk; i++)
            p.x.k[i] = stored(-size + 0.1 * uniform(), BF16);
        oracle_forward(&p.attrs, &p.x);
        cancellation = size / 0.1; /* all keys are nearly the same, and the ds of a query add up to 0 */
        check_problem(&s, &p);
        problem_free(&p);
    }
    cancellation = 1;
}

/* Schedules and late copies of sixteen seeds; the forward and the deterministic backward give the same bits in all of them, and on any
 * number of processors. */
static void seeds_and_determinism(void **state)
{
    (void)state;
    for (int32_t d = 64; d <= 128; d += 64) {
        const struct shape s = {.sq = 300, .sk = 300, .hq = 2, .hk = 1, .d = d, .mask = DOCUMENTS, .dtype = BF16, .gain = 1};
        struct problem p = problem_make(&s);
        struct call f[2], b[2];
        for (unsigned i = 0; i < 8; i++) {
            sim_reset(1000 + i);
            device.processors = 1 + (int)i;
            device.mode = ATTN_DETERMINISTIC;
            f[i > 0] = forward_call(&p, &sm90, 1, 0);
            b[i > 0] = backward_call(&p, &sm90, 1, 0);
            call_run(&f[i > 0], sm90.forward, &p.attrs);
            call_run(&b[i > 0], sm90.backward, &p.attrs);
            for (int k = 0; k < 3 && i > 0; k++) {
                if (k < 2)
                    assert_memory_equal(f[0].b[k].data, f[1].b[k].data, f[0].b[k].bytes);
                assert_memory_equal(b[0].b[k].data, b[1].b[k].data, b[0].b[k].bytes);
            }
            if (i > 0) {
                call_free(&f[1]);
                call_free(&b[1]);
            }
        }
        call_free(&f[0]);
        call_free(&b[0]);
        problem_free(&p);
    }
    device.processors = 3;
}

static int with_checks(void **state)
{
    (void)state;
    checks = 1;
    return 0;
}

/* [PATTERN]: only the tests whose names match */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_causal, with_checks),
        cmocka_unit_test_setup(sizes_rectangular, with_checks),
        cmocka_unit_test_setup(many_tiles, with_checks),
        cmocka_unit_test_setup(head_dims, with_checks),
        cmocka_unit_test_setup(grouped_heads, with_checks),
        cmocka_unit_test_setup(masks, with_checks),
        cmocka_unit_test_setup(ring_blocks, with_checks),
        cmocka_unit_test_setup(large_scores, with_checks),
        cmocka_unit_test_setup(negative_scores, with_checks),
        cmocka_unit_test_setup(seeds_and_determinism, with_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
