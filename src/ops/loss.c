/* Cross entropy and its gradient. */
#include "ops/loss.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"
#include "ops/vexp.h"

#include <float.h>

enum { ROW_LOSSES = 256 }; /* rows whose losses are held on the stack before they are summed in order */

CLONES static float block_max(const float *x, int64_t n, float m)
{
#pragma omp simd reduction(max : m)
    for (int64_t j = 0; j < n; j++)
        m = x[j] > m ? x[j] : m;
    return m;
}

/* Sum of exp(x - m), n <= ROWS_BLOCK; they go to e, which may be x. */
CLONES static float block_exp(float *e, const float *x, int64_t n, float m)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        e[j] = vexp(x[j] - m);
    f32x8 sum[2] = {{0}}, v[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, e, j, n - j, 0.0f, F32);
        sum[0] += v[0];
        sum[1] += v[1];
    }
    return lanes_sum(sum);
}

CLONES static void multiply(float *x, int64_t n, float factor)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] *= factor;
}

/* y = cap * tanh(scale * x / cap), or scale * x without a cap. */
INLINE float capped(const struct loss_shape *s, float x)
{
    return s->cap > 0.0f ? s->cap * vtanh(s->scale * x / s->cap) : s->scale * x;
}

CLONES static void cap_block(const struct loss_shape *s, float *y, const float *x, int64_t n)
{
    const struct loss_shape c = *s;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = capped(&c, x[j]);
}

/* x becomes its gradient, from e = exp(y - m) and y. */
CLONES static void capped_gradient(const struct loss_shape *s, float *x, const float *e, const float *y, int64_t n, float factor)
{
    const float scale = s->scale, inverse = s->cap > 0.0f ? 1.0f / s->cap : 0.0f;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float t = y[j] * inverse;
        x[j] = factor * e[j] * scale * fmaf(-t, t, 1.0f);
    }
}

/* A row whose logits are scaled or capped: these are computed block by block, three times. */
static double capped_loss(const struct loss_shape *s, float *x, int64_t target, float inv_targets)
{
    float y[ROWS_BLOCK], e[ROWS_BLOCK], m = -FLT_MAX;
    double sum = 0.0;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        m = block_max(y, n, m);
    }
    const float of_target = capped(s, x[target]), t = s->cap > 0.0f ? of_target / s->cap : 0.0f;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        sum += (double)block_exp(e, y, n, m);
    }
    for (int64_t j = 0; j < s->vocab && s->gradient; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        block_exp(e, y, n, m);
        capped_gradient(s, x + j, e, y, n, (float)((double)inv_targets / sum));
    }
    if (s->gradient)
        x[target] -= inv_targets * s->scale * fmaf(-t, t, 1.0f);
    return log(sum) + (double)m - (double)of_target;
}

static double row_loss(const struct loss_shape *s, float *x, int64_t target, float inv_targets)
{
    if (target < 0 || target >= s->vocab) {
        if (s->gradient)
            memset(x, 0, (size_t)s->vocab * sizeof *x);
        return target < 0 ? 0.0 : (double)NAN;
    }
    if (s->scale != 1.0f || s->cap > 0.0f)
        return capped_loss(s, x, target, inv_targets);
    const float m = block_max(x, s->vocab, -FLT_MAX); /* not -inf: a row of -inf has m - m = 0 terms, not NaN */
    const float of_target = x[target];
    double sum = 0.0;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        float buf[ROWS_BLOCK];
        sum += (double)block_exp(s->gradient ? x + j : buf, x + j, min_i64(ROWS_BLOCK, s->vocab - j), m);
    }
    if (s->gradient) {
        multiply(x, s->vocab, (float)((double)inv_targets / sum));
        x[target] -= inv_targets;
    }
    return log(sum) + (double)m - (double)of_target;
}

void ops_loss(const struct loss_shape *s, float *logits, double *loss, const int32_t *targets, float inv_targets,
              float *each)
{
    double total = 0.0;
    for (int64_t i0 = 0; i0 < s->rows; i0 += ROW_LOSSES) {
        double part[ROW_LOSSES];
        int64_t n = min_i64(ROW_LOSSES, s->rows - i0);
#pragma omp parallel for schedule(static) if (n * s->vocab > ROWS_SERIAL)
        for (int64_t i = 0; i < n; i++)
            part[i] = row_loss(s, logits + (i0 + i) * s->ld, targets[i0 + i], inv_targets);
        for (int64_t i = 0; i < n; i++)
            total += part[i];
        for (int64_t i = 0; each && i < n; i++)
            each[i0 + i] = (float)part[i];
    }
    *loss = total;
}

enum status ops_cpu_loss(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct loss_shape s = {.rows = a->loss.rows,
                           .vocab = a->loss.vocab,
                           .ld = a->loss.ld ? a->loss.ld : a->loss.vocab,
                           .gradient = a->loss.gradient,
                           .scale = a->loss.scale != 0.0f ? a->loss.scale : 1.0f,
                           .cap = a->loss.cap};
    const struct step_record *record = arg[3];
    ops_loss(&s, arg[0], arg[1], arg[2], record ? record->inv_targets : 0.0f, arg[4]);
    return OK;
}
