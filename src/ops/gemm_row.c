/* Multiplying one row by a matrix: B is read once, as stored. */
#include "ops/gemm_tile.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum {
    COLUMNS = 256, /* columns of C that one task computes */
    AHEAD = 512,   /* elements of B that are fetched ahead by software: one stream of loads alone does not keep memory busy */
};

/* Adds x[l] * y[l] to lane l % 16 of acc. */
CLONES static void add_products(f32x8 acc[2], const float *x, const float *y, int64_t n)
{
    f32x8 a[2] = {acc[0], acc[1]}, v[2], w[2];
    for (int64_t l = 0; l < n; l += LANES) {
        __builtin_prefetch(y + l + AHEAD);
        lanes_get(v, x, l, n - l, 0.0f, F32);
        lanes_get(w, y, l, n - l, 0.0f, F32);
        for (int half = 0; half < 2; half++)
            a[half] += v[half] * w[half];
    }
    acc[0] = a[0];
    acc[1] = a[1];
}

CLONES static void add_multiple(float *sum, float factor, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] = fmaf(factor, x[j], sum[j]);
}

/* Reads elements [l, l + n) of A, n <= ROWS_BLOCK. */
static const float *read_a(const struct gemm_shape *s, const void *a, int64_t l, int64_t n, float *buf)
{
    if (!s->ta || s->lda == 1)
        return rows_read(a, l, n, s->a_type, buf);
    for (int64_t i = 0; i < n; i++)
        buf[i] = s->a_type == F32 ? ((const float *)a)[(l + i) * s->lda] : bf16_to_float(((const bf16 *)a)[(l + i) * s->lda]);
    return buf;
}

/* Computes sum[n] = A times columns [j, j + n) of B. */
static void columns(const struct gemm_shape *s, float *sum, const void *a, const void *b, int64_t j, int64_t n)
{
    float buf_a[ROWS_BLOCK], buf_b[ROWS_BLOCK];
    f32x8 acc[COLUMNS][2] = {{{0}}};
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t l = 0; l < s->k; l += ROWS_BLOCK) {
        const int64_t k = min_i64(ROWS_BLOCK, s->k - l);
        const float *x = read_a(s, a, l, k, buf_a);
        for (int64_t i = 0; i < (s->tb ? n : 0); i++)
            add_products(acc[i], x, rows_read(b, (j + i) * s->ldb + l, k, s->b_type, buf_b), k);
        for (int64_t i = 0; i < (s->tb ? 0 : k); i++)
            add_multiple(sum, x[i], rows_read(b, (l + i) * s->ldb + j, n, s->b_type, buf_b), n);
    }
    for (int64_t i = 0; i < (s->tb ? n : 0); i++)
        sum[i] = lanes_sum(acc[i]);
}

void gemm_row(const struct gemm_shape *s, void *c, const void *a, const void *b)
{
#pragma omp parallel for schedule(static) if (s->n * s->k > ROWS_SERIAL)
    for (int64_t j = 0; j < s->n; j += COLUMNS) {
        float sum[COLUMNS];
        const int64_t n = min_i64(COLUMNS, s->n - j);
        columns(s, sum, a, b, j, n);
        for (int64_t i = 0; i < (s->scale != 0.0f ? n : 0); i++)
            sum[i] *= s->scale;
        for (int64_t i = 0; i < (s->accumulate ? n : 0); i++)
            sum[i] += s->c_type == F32 ? ((const float *)c)[j + i] : bf16_to_float(((const bf16 *)c)[j + i]);
        if (s->c_type == F32)
            memcpy((float *)c + j, sum, (size_t)n * sizeof *sum);
        else
            rows_to_bf16((bf16 *)c + j, sum, n);
    }
}
