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

/* Computes e = exp(x - m) and returns the sum, n <= ROWS_BLOCK; e may be x. */
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

/* Returns cap * tanh(scale * x / cap), or scale * x without a cap. */
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

/* Turns e = exp(y - m) into the gradient of the raw logits from which the capped logits y were made. */
CLONES static void capped_gradient(const struct loss_shape *s, float *e, const float *y, int64_t n, float factor)
{
    const float scale = s->scale, inverse = s->cap > 0.0f ? 1.0f / s->cap : 0.0f;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float t = y[j] * inverse;
        e[j] = factor * e[j] * scale * fmaf(-t, t, 1.0f);
    }
}

/* A row of logits, and room for its gradient in bf16. */
struct row {
    float *x;
    bf16 *rounded;
    int64_t target;
};

/* Writes elements [j, j + n) of a row's gradient, given as g. If the target is among these elements, subtracts `from_target` from
 * its element first. */
static void put_gradient(const struct loss_shape *s, const struct row *r, int64_t j, float *g, int64_t n, float from_target)
{
    if (r->target >= j && r->target < j + n)
        g[r->target - j] -= from_target;
    if (s->gradient_bf16)
        rows_to_bf16(r->rounded + j, g, n);
    else
        memcpy(r->x + j, g, (size_t)n * sizeof *g);
}

/* Computes the loss of a row whose logits are scaled or capped. Scaled logits are not stored but recomputed block by block, three
 * times. */
static double capped_loss(const struct loss_shape *s, const struct row *r, float inv_targets)
{
    const float *x = r->x;
    float y[ROWS_BLOCK], e[ROWS_BLOCK], m = -FLT_MAX;
    double sum = 0.0;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        m = block_max(y, n, m);
    }
    const float of_target = capped(s, x[r->target]), t = s->cap > 0.0f ? of_target / s->cap : 0.0f;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        sum += (double)block_exp(e, y, n, m);
    }
    for (int64_t j = 0; j < s->vocab && (s->gradient || s->gradient_bf16); j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        cap_block(s, y, x + j, n);
        block_exp(e, y, n, m);
        capped_gradient(s, e, y, n, (float)((double)inv_targets / sum));
        put_gradient(s, r, j, e, n, inv_targets * s->scale * fmaf(-t, t, 1.0f));
    }
    return log(sum) + (double)m - (double)of_target;
}

static double row_loss(const struct loss_shape *s, const struct row *r, float inv_targets)
{
    float *x = r->x;
    if (r->target < 0 || r->target >= s->vocab) {
        if (s->gradient_bf16)
            memset(r->rounded, 0, (size_t)s->vocab * sizeof *r->rounded);
        else if (s->gradient)
            memset(x, 0, (size_t)s->vocab * sizeof *x);
        return r->target < 0 ? 0.0 : (double)NAN;
    }
    if (s->scale != 1.0f || s->cap > 0.0f)
        return capped_loss(s, r, inv_targets);
    const float m = block_max(x, s->vocab, -FLT_MAX); /* not -inf: in a row of -inf, m - m would be NaN instead of 0 */
    const float of_target = x[r->target];
    double sum = 0.0;
    float buf[ROWS_BLOCK];
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK)
        sum += (double)block_exp(s->gradient ? x + j : buf, x + j, min_i64(ROWS_BLOCK, s->vocab - j), m);
    const float factor = (float)((double)inv_targets / sum);
    if (s->gradient) {
        multiply(x, s->vocab, factor);
        x[r->target] -= inv_targets;
    }
    for (int64_t j = 0; j < s->vocab && s->gradient_bf16; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        block_exp(buf, x + j, n, m);
        multiply(buf, n, factor);
        put_gradient(s, r, j, buf, n, inv_targets);
    }
    return log(sum) + (double)m - (double)of_target;
}

void ops_loss(const struct loss_shape *s, float *logits, double *loss, const int32_t *targets, float inv_targets, float *each,
              bf16 *rounded, const float *weights)
{
    double total = 0.0;
    for (int64_t i0 = 0; i0 < s->rows; i0 += ROW_LOSSES) {
        double part[ROW_LOSSES];
        int64_t n = min_i64(ROW_LOSSES, s->rows - i0);
#pragma omp parallel for schedule(static) if (n * s->vocab > ROWS_SERIAL)
        for (int64_t i = 0; i < n; i++)
            part[i] = row_loss(
                s, &(struct row){logits + (i0 + i) * s->ld, rounded ? rounded + (i0 + i) * s->ld : NULL, targets[i0 + i]},
                weights ? inv_targets * weights[i0 + i] : inv_targets);
        for (int64_t i = 0; i < n; i++)
            total += weights ? (double)weights[i0 + i] * part[i] : part[i];
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
                           .gradient_bf16 = a->loss.gradient_bf16,
                           .scale = a->loss.scale != 0.0f ? a->loss.scale : 1.0f,
                           .cap = a->loss.cap};
    const struct step_record *record = arg[3];
    ops_loss(&s, arg[0], arg[1], arg[2], record ? record->inv_targets : 0.0f, arg[4], arg[5], arg[6]);
    return OK;
}
