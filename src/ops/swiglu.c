/* SwiGLU, forward and backward. */
#include "ops/swiglu.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"
#include "ops/vexp.h"

INLINE void forward_typed(void *y, const void *gate, const void *up, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float g = row_get(gate, j, dtype);
        row_set(y, j, dtype, g * vsigmoid(g) * row_get(up, j, dtype));
    }
}

CLONES static void forward(void *y, const void *gate, const void *up, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, forward_typed, y, gate, up, at, n);
}

INLINE void backward_typed(void *gate, void *up, void *dy, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float g = row_get(gate, j, dtype), u = row_get(up, j, dtype), d = row_get(dy, j, dtype), s = vsigmoid(g);
        row_set(up, j, dtype, d * (g * s));
        row_set(gate, j, dtype, d * u * (s * fmaf(g, 1.0f - s, 1.0f)));
        row_set(dy, j, dtype, g * s * u);
    }
}

CLONES static void backward(void *gate, void *up, void *dy, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, backward_typed, gate, up, dy, at, n);
}

void ops_swiglu(void *y, const void *gate, const void *up, int64_t n, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        forward(y, gate, up, b * ROWS_BLOCK, rows_block_size(b, n), dtype);
}

void ops_swiglu_grad(void *gate, void *up, void *dy, int64_t n, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        backward(gate, up, dy, b * ROWS_BLOCK, rows_block_size(b, n), dtype);
}

enum status ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.dtype);
    return OK;
}

enum status ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu_grad(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.dtype);
    return OK;
}
