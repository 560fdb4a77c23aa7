/* SwiGLU, GeGLU and other gates, forward and backward. */
#include "ops/swiglu.h"

#include "ops/gate.h"
#include "ops/ops.h"
#include "ops/simd.h"

INLINE void forward_typed(void *y, const void *x, const void *up, int64_t at, int64_t n, struct gate f, int32_t kind,
                          int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope, g = gate_value(row_get(x, j, dtype), &slope, f, kind);
        row_set(y, j, dtype, g * gate_multiplier(row_get(up, j, dtype), &slope, f, kind));
    }
}

CLONES static void forward(void *y, const void *x, const void *up, int64_t at, int64_t n, struct gate f, int32_t dtype)
{
    FOR_GATE(forward_typed, y, x, up, at, n, f);
}

INLINE void backward_typed(void *x, void *up, void *dy, int64_t at, int64_t n, struct gate f, int32_t kind, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope, up_slope, d = row_get(dy, j, dtype), g = gate_value(row_get(x, j, dtype), &slope, f, kind);
        float u = gate_multiplier(row_get(up, j, dtype), &up_slope, f, kind);
        row_set(up, j, dtype, d * g * up_slope);
        row_set(x, j, dtype, d * u * slope);
        row_set(dy, j, dtype, g * u);
    }
}

CLONES static void backward(void *x, void *up, void *dy, int64_t at, int64_t n, struct gate f, int32_t dtype)
{
    FOR_GATE(backward_typed, x, up, dy, at, n, f);
}

void ops_swiglu(void *y, const void *gate, const void *up, int64_t n, struct gate f, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        forward(y, gate, up, b * ROWS_BLOCK, rows_block_size(b, n), f, dtype);
}

void ops_swiglu_grad(void *gate, void *up, void *dy, int64_t n, struct gate f, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        backward(gate, up, dy, b * ROWS_BLOCK, rows_block_size(b, n), f, dtype);
}

static struct gate gate_of(const struct op_attrs *a)
{
    return (struct gate){a->act.kind, a->act.limit, a->act.alpha};
}

enum status ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, gate_of(a), a->act.dtype);
    return OK;
}

enum status ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu_grad(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, gate_of(a), a->act.dtype);
    return OK;
}
