/* SwiGLU and GeGLU, forward and backward. */
#include "ops/swiglu.h"

#include "ops/gelu_phi.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

/* f(g), and its slope. */
INLINE float gate(float g, float *slope, int32_t kind)
{
    if (kind == GATE_SILU) {
        float s = vsigmoid(g);
        *slope = s * fmaf(g, 1.0f - s, 1.0f);
        return g * s;
    }
    if (kind == GATE_GELU_TANH) {
        float u, phi = tanh_phi(g, &u);
        *slope = tanh_slope(g, u, phi);
        return g * phi;
    }
    float phi = erf_phi(g);
    *slope = erf_slope(g, phi);
    return g * phi;
}

INLINE void forward_typed(void *y, const void *x, const void *up, int64_t at, int64_t n, int32_t kind, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope;
        row_set(y, j, dtype, gate(row_get(x, j, dtype), &slope, kind) * row_get(up, j, dtype));
    }
}

/* The kind is a constant in every loop. */
#define FOR_KIND(kind, loop, ...)                                                   \
    (kind == GATE_SILU        ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_SILU)      \
     : kind == GATE_GELU_TANH ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_TANH) \
                              : FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_ERF))

CLONES static void forward(void *y, const void *x, const void *up, int64_t at, int64_t n, int32_t kind, int32_t dtype)
{
    FOR_KIND(kind, forward_typed, y, x, up, at, n);
}

INLINE void backward_typed(void *x, void *up, void *dy, int64_t at, int64_t n, int32_t kind, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope, u = row_get(up, j, dtype), d = row_get(dy, j, dtype), f = gate(row_get(x, j, dtype), &slope, kind);
        row_set(up, j, dtype, d * f);
        row_set(x, j, dtype, d * u * slope);
        row_set(dy, j, dtype, f * u);
    }
}

CLONES static void backward(void *x, void *up, void *dy, int64_t at, int64_t n, int32_t kind, int32_t dtype)
{
    FOR_KIND(kind, backward_typed, x, up, dy, at, n);
}

void ops_swiglu(void *y, const void *gate, const void *up, int64_t n, int32_t kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        forward(y, gate, up, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

void ops_swiglu_grad(void *gate, void *up, void *dy, int64_t n, int32_t kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        backward(gate, up, dy, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

enum status ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.kind, a->act.dtype);
    return OK;
}

enum status ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_swiglu_grad(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, a->act.kind, a->act.dtype);
    return OK;
}
