/* Decays and steps of linear attention's heads, forward and backward. */
#include "ops/rows.h"
#include "recurrence/heads.h"

#include <math.h>

/* Returns log(1 + e^x). */
static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

enum status recurrence_decay(const struct op_attrs *a, void *const *arg, void *stream)
{
    float *g = arg[0], *beta = arg[1];
    const void *x = arg[2], *a_log = arg[3], *dt_bias = arg[4];
    const int64_t heads = a->decay.heads;
    const int32_t type = a->decay.dtype, x_type = a->decay.x_type;
    (void)stream;
#pragma omp parallel for schedule(static) if (a->decay.rows * heads > ROWS_SERIAL / 16)
    for (int64_t i = 0; i < a->decay.rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            const float u = row_get(x, i * a->decay.ld + a->decay.a_first + h, x_type) + row_get(dt_bias, h, type);
            const float step = fmaxf(softplus(u), a->decay.least);
            g[i * heads + h] = -expf(row_get(a_log, h, type)) * step;
            beta[i * heads + h] = a->decay.b_first < 0
                                      ? step
                                      : a->decay.factor * sigmoid(row_get(x, i * a->decay.ld + a->decay.b_first + h, x_type));
        }
    return OK;
}

/* Replaces a head's columns of row i by their gradients. Adds the row's part to the sums of da_log and ddt_bias. */
static void row_gradient(const struct op_attrs *a, void *const *arg, int64_t i, int64_t h, double sum[2])
{
    void *x = arg[0];
    const float *dg = arg[3], *dbeta = arg[4];
    const int64_t at = i * a->decay.heads + h, at_a = i * a->decay.ld + a->decay.a_first + h;
    const int32_t x_type = a->decay.x_type;
    const float rate = expf(row_get(arg[5], h, a->decay.dtype));
    const float u = row_get(x, at_a, x_type) + row_get(arg[6], h, a->decay.dtype);
    const float plus = softplus(u), step = fmaxf(plus, a->decay.least);
    float dstep = -rate * dg[at];
    if (a->decay.b_first < 0) {
        dstep += dbeta[at];
    } else {
        const int64_t at_b = i * a->decay.ld + a->decay.b_first + h;
        const float s = sigmoid(row_get(x, at_b, x_type));
        row_set(x, at_b, x_type, a->decay.factor * s * (1.0f - s) * dbeta[at]);
    }
    const float du = plus < a->decay.least ? 0.0f : sigmoid(u) * dstep;
    row_set(x, at_a, x_type, du);
    sum[0] += (double)(-rate * step * dg[at]);
    sum[1] += (double)du;
}

enum status recurrence_decay_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    float *da_log = arg[1], *ddt_bias = arg[2];
    (void)stream;
#pragma omp parallel for schedule(static) if (a->decay.rows * a->decay.heads > ROWS_SERIAL / 16)
    for (int64_t h = 0; h < a->decay.heads; h++) {
        double sum[2] = {0};
        for (int64_t i = 0; i < a->decay.rows; i++)
            row_gradient(a, arg, i, h, sum);
        if (da_log)
            da_log[h] = (a->decay.accumulate ? da_log[h] : 0) + (float)sum[0];
        if (ddt_bias)
            ddt_bias[h] = (a->decay.accumulate ? ddt_bias[h] : 0) + (float)sum[1];
    }
    return OK;
}
