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

/* Returns the number of decays of a head. */
static int64_t decays_of(const struct op_attrs *a)
{
    return a->decay.per > 0 ? a->decay.per : 1;
}

/* Writes decays that are constants of heads, and steps of 1. */
static void write_constants(const struct op_attrs *a, float *g, float *beta)
{
    const int64_t heads = a->decay.heads;
#pragma omp parallel for schedule(static) if (a->decay.rows * heads > ROWS_SERIAL)
    for (int64_t i = 0; i < a->decay.rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            g[i * heads + h] = -a->decay.rate * exp2f(-8.0f * (float)(h + 1) / (float)heads);
            beta[i * heads + h] = 1.0f;
        }
}

enum status recurrence_decay(const struct op_attrs *a, void *const *arg, void *stream)
{
    float *g = arg[0], *beta = arg[1];
    const void *x = arg[2], *a_log = arg[3], *dt_bias = arg[4];
    const int64_t heads = a->decay.heads, per = decays_of(a);
    const int32_t type = a->decay.dtype, x_type = a->decay.x_type;
    (void)stream;
    if (!x) {
        write_constants(a, g, beta);
        return OK;
    }
#pragma omp parallel for schedule(static) if (a->decay.rows * heads * per > ROWS_SERIAL / 16)
    for (int64_t i = 0; i < a->decay.rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            const float rate = expf(row_get(a_log, h, type));
            float step = 0;
            for (int64_t k = h * per; k < (h + 1) * per; k++) {
                const float u = row_get(x, i * a->decay.ld + a->decay.a_first + k, x_type) + row_get(dt_bias, k, type);
                step = fmaxf(softplus(u), a->decay.least);
                g[i * heads * per + k] = -rate * step;
            }
            beta[i * heads + h] = a->decay.b_first < 0
                                      ? step
                                      : a->decay.factor * sigmoid(row_get(x, i * a->decay.ld + a->decay.b_first + h, x_type));
        }
    return OK;
}

/* Replaces column k of a, a decay of head h, by its gradient in row i, and adds the row's part to the sums of da_log and ddt_bias. dbeta:
 * gradient of the step itself. */
static void step_gradient(const struct op_attrs *a, void *const *arg, int64_t i, int64_t h, int64_t k, float dbeta, double sum[2])
{
    const int64_t at = i * a->decay.ld + a->decay.a_first + k;
    const float rate = expf(row_get(arg[5], h, a->decay.dtype));
    const float dg = ((const float *)arg[3])[i * a->decay.heads * decays_of(a) + k];
    const float u = row_get(arg[0], at, a->decay.x_type) + row_get(arg[6], k, a->decay.dtype);
    const float plus = softplus(u), step = fmaxf(plus, a->decay.least);
    const float dstep = -rate * dg + dbeta, du = plus < a->decay.least ? 0.0f : sigmoid(u) * dstep;
    row_set(arg[0], at, a->decay.x_type, du);
    sum[0] += (double)(-rate * step * dg);
    sum[1] += (double)du;
}

/* Replaces head h's column of b by its gradient in row i. */
static void strength_gradient(const struct op_attrs *a, void *const *arg, int64_t i, int64_t h)
{
    const int64_t at = i * a->decay.ld + a->decay.b_first + h;
    const float s = sigmoid(row_get(arg[0], at, a->decay.x_type));
    const float dbeta = ((const float *)arg[4])[i * a->decay.heads + h];
    row_set(arg[0], at, a->decay.x_type, a->decay.factor * s * (1.0f - s) * dbeta);
}

enum status recurrence_decay_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    float *da_log = arg[1], *ddt_bias = arg[2];
    const float *dbeta = arg[4];
    const int64_t heads = a->decay.heads, per = decays_of(a);
    (void)stream;
#pragma omp parallel for schedule(static) if (a->decay.rows * heads * per > ROWS_SERIAL / 16)
    for (int64_t h = 0; h < heads; h++) {
        double of_rate = 0;
        for (int64_t k = h * per; k < (h + 1) * per; k++) {
            double sum[2] = {0};
            for (int64_t i = 0; i < a->decay.rows; i++)
                step_gradient(a, arg, i, h, k, a->decay.b_first < 0 ? dbeta[i * heads + h] : 0.0f, sum);
            of_rate += sum[0];
            if (ddt_bias)
                ddt_bias[k] = (a->decay.accumulate ? ddt_bias[k] : 0) + (float)sum[1];
        }
        for (int64_t i = 0; i < a->decay.rows && a->decay.b_first >= 0; i++)
            strength_gradient(a, arg, i, h);
        if (da_log)
            da_log[h] = (a->decay.accumulate ? da_log[h] : 0) + (float)of_rate;
    }
    return OK;
}
