/* Tests that rates corrected by observed times give those times, and that nothing else changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/observed.h"
#include "machine/rank_cost.h"

#include <math.h>
#include <string.h>

static void within(double x, double want, double part)
{
    if (!(fabs(x - want) <= part * fabs(want)))
        fail_msg("%.17g, not %.17g", x, want);
}

static void near(double x, double want)
{
    within(x, want, 1e-12); /* a few roundings */
}

static void rates(void **state)
{
    (void)state;
    static struct hardware before, after;
    static struct observed o;
    hardware_assumed(&before);
    before.overhead = 1e-3;
    after = before;
    memset(&o, 0, sizeof o);
    o.gemm[F32][GEMM_NT] = (struct observed_sum){1.1, 2.1, 100}; /* 0.1 s of both are the instructions' fixed part */
    o.attention[BF16][1] = (struct observed_sum){4, 1, 1};
    o.op[OBSERVED_DEVICE][OP_ADAMW][F32] = (struct observed_sum){1, 5e6, 1}; /* beyond what is believed */
    o.op[OBSERVED_HOST][OP_ADD][F32] = (struct observed_sum){1e-9, 1, 1};    /* too little to follow from */
    o.lane[LANE_READ] = (struct observed_sum){1, 3, 7};
    observed_correct(&o, &after);
    struct gemm_rates by_size;
    hardware_set_gemm(&by_size, before.device.gemm[F32].flops[GEMM_NT][5], 100);
    near(after.device.gemm[F32].flops[GEMM_NT][5], by_size.flops[GEMM_NT][5] / 2);
    near(after.device.gemm[F32].flops[GEMM_NN][5], by_size.flops[GEMM_NN][5]);
    near(after.device.gemm[BF16].flops[GEMM_NT][5], before.device.gemm[BF16].flops[GEMM_NT][5]);
    assert_true(after.device.attention_by == BY_PAIRS);
    const struct curve *a = &after.device.attention[BF16][0].backward, *b = &after.device.attention[F32][0].backward;
    for (int i = 0; i < CURVE_POINTS; i++)
        near(a->y[i], b->y[i] * (4 - 1e-3) / (1 - 1e-3));
    near(b->y[5], before.device.attention[F32][0].backward.y[0] * 4096 / (4096 + 150));
    assert_true(after.device.ops.op[OP_ADAMW][F32].n > 0);
    near(after.device.ops.op[OP_ADAMW][F32].y[0],
         (before.device.ops.op[OP_ADAMW][F32].n ? before.device.ops.op[OP_ADAMW][F32].y[0] : before.device.ops.memory.y[0]) / 30);
    near(after.device.ops.memory.y[0], before.device.ops.memory.y[0]);
    assert_memory_equal(&after.host, &before.host, sizeof before.host);
    near(after.read, before.read / 3);
    near(after.write, before.write);
    near(after.both, before.both * (after.read + after.write) / (before.read + before.write));
    near(after.h2d, before.h2d);
    near(after.inside, before.inside);
}

/* Returns the seconds of a machine whose attention has half of its rate at x tokens, and whose other ops take x times the planned
 * time. */
static double true_seconds(const struct cost_model *m, double x, const struct instr *in, const struct op_call *c)
{
    const double rows = (double)(c->attrs.attn.sq + c->attrs.attn.sk);
    if (in->op != OP_ATTN_FWD)
        return m->overhead + x * (cost_seconds(m, in, c) - m->overhead);
    const double length = 4 * c->flops / op_flops(in->op, &c->attrs, 1) / rows;
    return m->overhead + c->flops * (1 + x / length) / 70e9;
}

static struct op_call attention_call(double length, double queries)
{
    struct op_call c = {.attrs.attn = {.sq = (int64_t)queries, .sk = (int64_t)length, .hq = 8, .hk = 2, .head_dim = 64}};
    c.flops = op_flops(OP_ATTN_FWD, &c.attrs, length * (length + 1) / 2 * queries / length);
    return c;
}

static struct op_call scan_call(int64_t rows)
{
    struct op_call c = {.attrs.scan = {.rows = rows, .heads = 8, .groups = 8, .key_dim = 64, .value_dim = 64},
                        .bytes = rows * 4096};
    c.flops = op_flops(OP_SCAN, &c.attrs, 0);
    return c;
}

/* Runs a call as planned by *h, and gives the machine that the run leaves. */
static void learn(struct hardware *h, double x, enum op_kind op, struct op_call *c)
{
    static struct observed o;
    static struct cost_model m;
    struct plan_request s = {.hardware = h, .threads = 1, .mesh = mesh_uniform(1)};
    struct program p = {.calls = c};
    struct instr in = {.op = (uint8_t)op, .lane = LANE_COMPUTE};
    memset(&o, 0, sizeof o);
    plan_cost_model(&s, &m);
    in.end = cost_seconds(&m, &in, c);
    observed_add(&o, &m, &p, &in, true_seconds(&m, x, &in, c));
    observed_correct(&o, h);
}

static double predict(struct hardware *h, enum op_kind op, const struct op_call *c)
{
    static struct cost_model m;
    struct plan_request s = {.hardware = h, .threads = 1, .mesh = mesh_uniform(1)};
    const struct instr in = {.op = (uint8_t)op, .lane = LANE_COMPUTE};
    plan_cost_model(&s, &m);
    return cost_seconds(&m, &in, c);
}

/* A run of one length predicts attention of another, in tiles of as many queries, too; a second run corrects only what is left. */
static void other_lengths(void **state)
{
    (void)state;
    static const struct {
        double first, first_queries, second, second_queries;
    } runs[] = {{1024, 1024, 4096, 4096}, {4096, 2048, 2048, 2048}, {2048, 2048, 8192, 2048}, {16384, 2048, 1024, 1024}};
    static const struct instr in = {.op = OP_ATTN_FWD, .lane = LANE_COMPUTE};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (double half = 75; half <= 300; half *= 2) { /* kernels up to twice as slow to start, or as quick, as assumed */
            static struct hardware h;
            hardware_assumed(&h);
            const struct cost_model m = {.overhead = h.overhead};
            struct op_call first = attention_call(runs[i].first, runs[i].first_queries),
                           second = attention_call(runs[i].second, runs[i].second_queries);
            learn(&h, half, OP_ATTN_FWD, &first);
            within(predict(&h, OP_ATTN_FWD, &first), true_seconds(&m, half, &in, &first), 1e-9);
            const double want = true_seconds(&m, half, &in, &second);
            within(predict(&h, OP_ATTN_FWD, &second), want, half == 150 ? 0.01 /* the curve's straight pieces */ : 0.12);
            learn(&h, half, OP_ATTN_FWD, &second);
            within(predict(&h, OP_ATTN_FWD, &second), want, 1e-9);
        }
}

static struct op_call product_call(int64_t m, int64_t n, int64_t k)
{
    struct op_call c = {.attrs.gemm = {.m = m, .n = n, .k = k}};
    c.flops = 2.0 * (double)m * (double)n * (double)k;
    return c;
}

/* A run of some products predicts larger and smaller ones: half of the rate is reached at sizes of 100. Measured rates keep
 * their shape. */
static void other_sizes(void **state)
{
    (void)state;
    for (int measured = 0; measured < 2; measured++) {
        static struct hardware h;
        hardware_assumed(&h);
        if (measured)
            hardware_set_gemm(&h.device.gemm[F32], 150e9, 50);
        struct op_call first = product_call(1024, 512, 512), second = product_call(2048, 2048, 128);
        const double half = measured ? 50 : 100, before = predict(&h, OP_GEMM, &first) - h.overhead;
        learn(&h, 0.5, OP_GEMM, &first);
        within(predict(&h, OP_GEMM, &first) - h.overhead, before / 2, 1e-9);
        const double part = 512 / (512 + half) * 512 / (512 + half) * 1024 / (1024 + half),
                     want = 2048 / (2048 + half) * 2048 / (2048 + half) * 128 / (128 + half);
        within((predict(&h, OP_GEMM, &second) - h.overhead) / second.flops * first.flops / (before / 2), part / want,
               0.03 /* the table's straight pieces */);
    }
}

/* A scan that was planned by its products is learnt from, too, be it slower or faster than planned. */
static void scans(void **state)
{
    (void)state;
    for (double times = 0.5; times < 4; times += 2.5) {
        static struct hardware h;
        hardware_assumed(&h);
        struct op_call first = scan_call(1024), second = scan_call(4096);
        const double planned = predict(&h, OP_SCAN, &second) - h.overhead;
        assert_true(planned > 2 * (double)second.bytes / h.device.ops.memory.y[0]); /* by products, or this shows nothing */
        learn(&h, times, OP_SCAN, &first);
        within(predict(&h, OP_SCAN, &second) - h.overhead, times * planned, 1e-9);
    }
}

static void nothing_seen(void **state)
{
    (void)state;
    static struct hardware before, after;
    static struct observed o;
    hardware_assumed(&before);
    after = before;
    observed_correct(&o, &after);
    assert_memory_equal(&after, &before, sizeof before);
}

static void sums(void **state)
{
    (void)state;
    static struct observed a, b;
    a.lane[LANE_READ] = (struct observed_sum){1, 2, 3};
    b.lane[LANE_READ] = (struct observed_sum){10, 20, 30};
    b.gemm[0][0] = (struct observed_sum){5, 6, 7};
    observed_merge(&a, &b);
    assert_true(a.lane[LANE_READ].planned == 11 && a.lane[LANE_READ].measured == 22 && a.lane[LANE_READ].n == 33);
    assert_true(a.gemm[0][0].planned == 5 && a.gemm[0][0].measured == 6 && a.gemm[0][0].n == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates), cmocka_unit_test(other_lengths), cmocka_unit_test(other_sizes),
                                       cmocka_unit_test(scans), cmocka_unit_test(nothing_seen),  cmocka_unit_test(sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
