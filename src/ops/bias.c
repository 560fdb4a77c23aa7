/* Bias and its gradient. */
#include "ops/bias.h"

#include "ops/rows.h"
#include "ops/simd.h"

enum {
    PANEL = 128,    /* columns that one task owns */
    ROW_GROUP = 64, /* rows summed before their sum is added to the total: keeps rounding small for long chunks */
};

CLONES static void add_to(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] += x[j];
}

void ops_bias(void *y, const void *bias, int64_t rows, int64_t dim, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++) {
        float by[ROWS_BLOCK], bb[ROWS_BLOCK];
        for (int64_t j = 0; j < dim; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, dim - j), at = i * dim + j;
            float *out = rows_target(y, at, dtype, by);
            rows_read(y, at, n, dtype, by);
            add_to(out, rows_read(bias, j, n, dtype, bb), n);
            rows_write(y, at, n, dtype, out);
        }
    }
}

void ops_bias_grad(float *dbias, const void *dy, int64_t rows, int64_t dim, int32_t y_type, int32_t accumulate)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t j = 0; j < dim; j += PANEL) {
        float buf[PANEL], sum[PANEL] = {0};
        int64_t n = min_i64(PANEL, dim - j);
        for (int64_t i0 = 0; i0 < rows; i0 += ROW_GROUP) {
            float group[PANEL] = {0};
            for (int64_t i = i0; i < min_i64(i0 + ROW_GROUP, rows); i++)
                add_to(group, rows_read(dy, i * dim + j, n, y_type, buf), n);
            add_to(sum, group, n);
        }
        if (accumulate)
            add_to(dbias + j, sum, n);
        else
            memcpy(dbias + j, sum, (size_t)n * sizeof *sum);
    }
}
