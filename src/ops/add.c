/* Residual addition and accumulation. */
#include "ops/add.h"

#include "ops/rows.h"
#include "ops/simd.h"

CLONES static void add_three(float *y, const float *x, const float *delta, const float *bias, int64_t n)
{
    if (bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = x[j] + delta[j] + bias[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = x[j] + delta[j];
    }
}

void ops_add(void *y, const void *x, const float *delta, const void *bias, int64_t rows, int64_t dim, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++) {
        float bx[ROWS_BLOCK], bb[ROWS_BLOCK], by[ROWS_BLOCK];
        for (int64_t j = 0; j < dim; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, dim - j), at = i * dim + j;
            float *out = rows_target(y, at, dtype, by);
            add_three(out, rows_read(x, at, n, dtype, bx), delta + at, bias ? rows_read(bias, j, n, dtype, bb) : NULL, n);
            rows_write(y, at, n, dtype, out);
        }
    }
}

void ops_accum(float *y, const float *x, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++) {
        int64_t at = b * ROWS_BLOCK;
        add_three(y + at, y + at, x + at, NULL, rows_block_size(b, n));
    }
}
