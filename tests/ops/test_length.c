/* Compares sums as long as a sequence with fp64: column sums over a million rows that always round in the same direction, and
 * attention merged from as many parts as the largest ring has members. */
#include "ops/bias.h"
#include "ops/heads.h"
#include "ops/norm.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

enum { ROWS = 1 << 20, DIM = 8 };

static float *filled(int64_t n, float x)
{
    float *p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++)
        p[i] = x;
    return p;
}

static void expect(const char *what, const float *got, double want)
{
    for (int j = 0; j < DIM; j++)
        if (!(fabs((double)got[j] - want) <= 1e-6 * want))
            fail_msg("%s: %.9g, not %.9g", what, (double)got[j], want);
}

static void bias_gradient(void **state)
{
    (void)state;
    float *dy = filled((int64_t)ROWS * DIM, 0.7f), dbias[DIM];
    ops_bias_grad(dbias, dy, ROWS, DIM, DIM, F32, 0);
    expect("dbias", dbias, (double)0.7f * ROWS);
    free(dy);
}

/* The norm's gradient over rows that alternate between 0.7 and -0.7 in each column, of mean 0. */
static void norm_gradient(void **state)
{
    (void)state;
    const struct norm_shape s = {.rows = ROWS, .dim = DIM, .segments = 1, .eps = 1e-5f, .kind = NORM_LAYER, .dtype = F32};
    float *x = filled((int64_t)ROWS * DIM, 1), *dy = filled((int64_t)ROWS * DIM, 0.7f), *dx = filled((int64_t)ROWS * DIM, 0);
    float *work = filled(ops_norm_grad_workspace(&s) / 4, NAN), weight[DIM], dweight[DIM], dbias[DIM];
    for (int64_t i = 0; i < (int64_t)ROWS * DIM; i++)
        x[i] = dy[i] = i % 2 ? -0.7f : 0.7f;
    for (int j = 0; j < DIM; j++)
        weight[j] = 1;
    ops_norm_grad(&s, dx, x, weight, dy, dweight, dbias, work);
    for (int j = 0; j < DIM; j++)
        dbias[j] = j % 2 ? -dbias[j] : dbias[j];
    expect("dbias", dbias, (double)0.7f * ROWS);
    expect("dweight", dweight, (double)0.7f * (double)0.7f / sqrt((double)0.7f * (double)0.7f + (double)1e-5f) * ROWS);
    free(x), free(dy), free(dx), free(work);
}

/* Draws a number in [0, 1). */
static float uniform(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 16777216.0f;
}

/* Merges of a ring stay accurate, though every merge rounds lse and the weights made from it: measured errors are 2.8e-5 of lse,
 * 7e-6 of o. */
static void ring_merges(void **state)
{
    (void)state;
    enum { PARTS = 1024, QUERIES = 64, HEAD = 32 };
    static float o[QUERIES * HEAD], lse[QUERIES], o_part[QUERIES * HEAD], lse_part[QUERIES];
    static double want[QUERIES * HEAD], sum[QUERIES];
    const struct heads_shape s = {.rows = QUERIES, .heads = 1, .head_dim = HEAD};
    double off = 0, norm = 0;
    for (int i = 0; i < QUERIES; i++)
        lse[i] = -INFINITY;
    for (int part = 0; part < PARTS; part++) {
        for (int i = 0; i < QUERIES; i++) {
            lse_part[i] = 13 + uniform();
            sum[i] += exp((double)lse_part[i]);
            for (int j = i * HEAD; j < (i + 1) * HEAD; j++) {
                o_part[j] = uniform() - 0.5f;
                want[j] += exp((double)lse_part[i]) * (double)o_part[j];
            }
        }
        ops_attn_merge(&s, o, lse, o_part, lse_part);
    }
    for (int i = 0; i < QUERIES * HEAD; i++) {
        const double w = want[i] / sum[i / HEAD];
        off += ((double)o[i] - w) * ((double)o[i] - w);
        norm += w * w;
        assert_true(fabs((double)lse[i / HEAD] - log(sum[i / HEAD])) < 1e-4);
    }
    assert_true(sqrt(off / norm) < 2e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bias_gradient), cmocka_unit_test(norm_gradient),
                                       cmocka_unit_test(ring_merges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
