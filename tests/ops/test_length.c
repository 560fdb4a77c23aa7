/* Column sums over a million rows, which round the same way every time, against fp64. */
#include "ops/bias.h"
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
    ops_bias_grad(dbias, dy, ROWS, DIM, F32, 0);
    expect("dbias", dbias, (double)0.7f * ROWS);
    free(dy);
}

/* Every row is 0.7, -0.7, 0.7 ..., of mean 0. */
static void norm_gradient(void **state)
{
    (void)state;
    const struct norm_shape s = {.rows = ROWS, .dim = DIM, .eps = 1e-5f, .kind = NORM_LAYER, .dtype = F32};
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bias_gradient), cmocka_unit_test(norm_gradient)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
