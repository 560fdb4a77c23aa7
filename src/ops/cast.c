/* Changing the storage type of numbers, and scaling them. */
#include "ops/cast.h"

#include "ops/memory.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

void ops_cast(void *y, const void *x, int64_t n, int32_t y_type, int32_t x_type)
{
    if (y_type == x_type) {
        ops_copy(y, x, n * dtype_size((enum dtype)x_type));
        return;
    }
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++) {
        int64_t at = b * ROWS_BLOCK, size = rows_block_size(b, n);
        if (y_type == F32)
            rows_from_bf16((float *)y + at, (const bf16 *)x + at, size);
        else
            rows_to_bf16((bf16 *)y + at, (const float *)x + at, size);
    }
}

INLINE void scale_typed(void *y, const void *x, float scale, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++)
        row_set(y, j, dtype, scale * row_get(x, j, dtype));
}

CLONES static void scale_block(void *y, const void *x, float scale, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, scale_typed, y, x, scale, at, n);
}

void ops_scale(void *y, const void *x, float scale, int64_t n, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        scale_block(y, x, scale, b * ROWS_BLOCK, rows_block_size(b, n), dtype);
}

enum status ops_cpu_multiply(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_scale(arg[0], arg[0], row_get(arg[1], 0, a->cast.x_type), a->cast.n, a->cast.x_type);
    return OK;
}

enum status ops_cpu_cast(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    if (a->cast.scale != 0.0f && a->cast.y_type == a->cast.x_type)
        ops_scale(arg[0], arg[1], a->cast.scale, a->cast.n, a->cast.y_type);
    else
        ops_cast(arg[0], arg[1], a->cast.n, a->cast.y_type, a->cast.x_type);
    return OK;
}
