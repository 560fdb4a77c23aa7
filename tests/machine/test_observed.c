/* Tests that rates corrected by observed times give those times, and that nothing else changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/observed.h"

#include <math.h>
#include <string.h>

static void near(double x, double want)
{
    if (fabs(x - want) > 1e-12 * fabs(want)) /* a few roundings */
        fail_msg("%.17g, not %.17g", x, want);
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
    near(after.device.gemm[F32].flops[GEMM_NT][5], before.device.gemm[F32].flops[GEMM_NT][5] / 2);
    near(after.device.gemm[F32].flops[GEMM_NN][5], before.device.gemm[F32].flops[GEMM_NN][5]);
    near(after.device.gemm[BF16].flops[GEMM_NT][5], before.device.gemm[BF16].flops[GEMM_NT][5]);
    near(after.device.attention[BF16][0].backward.y[0], before.device.attention[BF16][0].backward.y[0] * (4 - 1e-3) / (1 - 1e-3));
    near(after.device.attention[BF16][0].forward.y[0], before.device.attention[BF16][0].forward.y[0]);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates), cmocka_unit_test(nothing_seen), cmocka_unit_test(sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
