/* Cross entropy and its gradient. */
#include "ops/loss.h"

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

/* sum exp(x - m), n <= ROWS_BLOCK */
CLONES static float block_sum(const float *x, int64_t n, float m)
{
    float e[ROWS_BLOCK + LANES];
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        e[j] = vexp(x[j] - m);
    memset(e + n, 0, LANES * sizeof *e);
    f32x8 a0 = {0}, a1 = {0}, v;
    for (int64_t j = 0; j < n; j += LANES) {
        memcpy(&v, e + j, sizeof v);
        a0 += v;
        memcpy(&v, e + j + 8, sizeof v);
        a1 += v;
    }
    float sum[LANES];
    memcpy(sum, &a0, sizeof a0);
    memcpy(sum + 8, &a1, sizeof a1);
    return lanes_sum(sum);
}

CLONES static void softmax(float *x, int64_t n, float m, float scale)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] = vexp(x[j] - m) * scale;
}

static double row_loss(const struct loss_shape *s, float *x, int64_t target, float inv_targets)
{
    if (target < 0 || target >= s->vocab) {
        if (s->gradient)
            memset(x, 0, (size_t)s->vocab * sizeof *x);
        return target < 0 ? 0.0 : (double)NAN;
    }
    float m = -FLT_MAX; /* not -inf: a block of -inf has m - m = 0 terms, not NaN */
    double sum = 0.0;
    for (int64_t j = 0; j < s->vocab; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->vocab - j);
        float larger = block_max(x + j, n, m);
        if (larger > m)
            sum *= (double)vexp(m - larger);
        m = larger;
        sum += (double)block_sum(x + j, n, m);
    }
    double loss = log(sum) + (double)m - (double)x[target];
    if (s->gradient) {
        softmax(x, s->vocab, m, (float)((double)inv_targets / sum));
        x[target] -= inv_targets;
    }
    return loss;
}

void ops_loss(const struct loss_shape *s, float *logits, double *loss, const int32_t *targets, float inv_targets)
{
    double total = 0.0;
    for (int64_t i0 = 0; i0 < s->rows; i0 += ROW_LOSSES) {
        double part[ROW_LOSSES];
        int64_t n = min_i64(ROW_LOSSES, s->rows - i0);
#pragma omp parallel for schedule(static) if (n * s->vocab > ROWS_SERIAL)
        for (int64_t i = 0; i < n; i++)
            part[i] = row_loss(s, logits + (i0 + i) * s->vocab, targets[i0 + i], inv_targets);
        for (int64_t i = 0; i < n; i++)
            total += part[i];
    }
    *loss = s->accumulate ? *loss + total : total;
}
