/* Residual addition and accumulation. */
#include "ops/add.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

INLINE void add_typed(void *y, const void *x, const float *delta, const void *bias, float scale, int64_t at, int64_t n,
                      int32_t dtype)
{
    if (bias && scale != 1.0f) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            row_set(y, at + j, dtype, fmaf(scale, delta[at + j] + row_get(bias, j, dtype), row_get(x, at + j, dtype)));
    } else if (scale != 1.0f) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            row_set(y, at + j, dtype, fmaf(scale, delta[at + j], row_get(x, at + j, dtype)));
    } else if (bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            row_set(y, at + j, dtype, row_get(x, at + j, dtype) + delta[at + j] + row_get(bias, j, dtype));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            row_set(y, at + j, dtype, row_get(x, at + j, dtype) + delta[at + j]);
    }
}

CLONES static void add_elements(void *y, const void *x, const float *delta, const void *bias, float scale, int64_t at, int64_t n,
                                int32_t dtype)
{
    FOR_DTYPE(dtype, add_typed, y, x, delta, bias, scale, at, n);
}

void ops_add(void *y, const void *x, const float *delta, const void *bias, float scale, int64_t rows, int64_t dim, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (rows * dim > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++)
        add_elements(y, x, delta, bias, scale, i * dim, dim, dtype);
}

void ops_accum(float *y, const float *x, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        add_elements(y, y, x, NULL, 1.0f, b * ROWS_BLOCK, rows_block_size(b, n), F32);
}

enum status ops_cpu_add(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_add(arg[0], arg[1], arg[2], arg[3], a->add.scale != 0.0f ? a->add.scale : 1.0f, a->add.rows, a->add.dim, a->add.dtype);
    return OK;
}

enum status ops_cpu_accum(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_accum(arg[0], arg[1], a->vec.n);
    return OK;
}
