/* Attention's work per row and head. */
#include "ops/heads.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

/* acc[j % 16] += x[j] * y[j] */
CLONES static void add_products(float acc[LANES], const float *x, const float *y, int64_t n)
{
    f32x8 a0, a1, v, w;
    int64_t j = 0;
    memcpy(&a0, acc, sizeof a0);
    memcpy(&a1, acc + 8, sizeof a1);
    for (; j + LANES <= n; j += LANES) {
        memcpy(&v, x + j, sizeof v);
        memcpy(&w, y + j, sizeof w);
        a0 += v * w;
        memcpy(&v, x + j + 8, sizeof v);
        memcpy(&w, y + j + 8, sizeof w);
        a1 += v * w;
    }
    memcpy(acc, &a0, sizeof a0);
    memcpy(acc + 8, &a1, sizeof a1);
    for (int64_t l = 0; j + l < n; l++)
        acc[l] += x[j + l] * y[j + l];
}

CLONES static void blend(float *o, const float *part, float keep, float add, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        o[j] = fmaf(keep, o[j], add * part[j]);
}

void ops_attn_delta(const struct heads_shape *s, float *delta, const void *o, const void *d_o)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->heads; i++) {
        float bo[ROWS_BLOCK], bd[ROWS_BLOCK], acc[LANES] = {0};
        for (int64_t j = 0; j < s->head_dim; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, s->head_dim - j), at = i * s->head_dim + j;
            add_products(acc, rows_read(o, at, n, s->dtype, bo), rows_read(d_o, at, n, s->dtype, bd), n);
        }
        delta[i] = lanes_sum(acc);
    }
}

/* The weights of o and of its part in their union, and its lse. */
static float merge_weights(float lse, float part, float *keep, float *add)
{
    if (part == -INFINITY || lse == -INFINITY) {
        *keep = part == -INFINITY;
        *add = part != -INFINITY;
        return part == -INFINITY ? lse : part;
    }
    float smaller = expf(-fabsf(lse - part)),
          larger = 1.0f / (1.0f + smaller); /* larger >= 1/2: of the one with the larger lse */
    *keep = lse >= part ? larger : smaller * larger;
    *add = lse >= part ? smaller * larger : larger;
    return fmaxf(lse, part) + log1pf(smaller);
}

void ops_attn_merge(const struct heads_shape *s, float *o, float *lse, const void *o_part, const float *lse_part)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->heads; i++) {
        const int64_t at = i % s->heads * s->rows + i / s->heads;
        float buf[ROWS_BLOCK], keep = 0, add = 1, merged = lse_part[at];
        if (s->accumulate)
            merged = merge_weights(lse[at], lse_part[at], &keep, &add);
        lse[at] = merged;
        for (int64_t j = 0; j < s->head_dim && add != 0; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, s->head_dim - j), first = i * s->head_dim + j;
            const float *part = rows_read(o_part, first, n, s->dtype, buf);
            if (keep == 0) /* whatever o holds */
                memcpy(o + first, part, (size_t)n * sizeof *o);
            else
                blend(o + first, part, keep, add, n);
        }
    }
}
