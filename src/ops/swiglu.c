/* SwiGLU, GeGLU and other gates, forward and backward. */
#include "ops/swiglu.h"

#include "ops/gelu_phi.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

/* Returns f(g); *slope: its derivative. */
INLINE float gated(float g, float *slope, struct gate f, int32_t kind)
{
    if (kind == GATE_SILU) {
        float s = vsigmoid(g);
        *slope = s * fmaf(g, 1.0f - s, 1.0f);
        return g * s;
    }
    if (kind == GATE_SIGMOID) {
        float s = vsigmoid(g);
        *slope = s * (1.0f - s);
        return s;
    }
    if (kind == GATE_CLAMPED) {
        float c = g > f.limit ? f.limit : g, s = vsigmoid(f.alpha * c);
        *slope = g > f.limit ? 0.0f : s * fmaf(f.alpha * c, 1.0f - s, 1.0f);
        return c * s;
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

/* Returns the factor that multiplies f(gate), made from `up`; *slope: its derivative. */
INLINE float multiplier(float u, float *slope, struct gate f, int32_t kind)
{
    *slope = 1.0f;
    if (kind != GATE_CLAMPED)
        return u;
    float c = u > f.limit ? f.limit : u;
    c = c < -f.limit ? -f.limit : c;
    *slope = u > f.limit || u < -f.limit ? 0.0f : 1.0f;
    return c + 1.0f;
}

INLINE void forward_typed(void *y, const void *x, const void *up, int64_t at, int64_t n, struct gate f, int32_t kind,
                          int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope, g = gated(row_get(x, j, dtype), &slope, f, kind);
        row_set(y, j, dtype, g * multiplier(row_get(up, j, dtype), &slope, f, kind));
    }
}

/* Calls a loop with the kind as a constant. */
#define FOR_KIND(loop, ...)                                                           \
    (f.kind == GATE_SILU        ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_SILU)      \
     : f.kind == GATE_GELU_TANH ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_TANH) \
     : f.kind == GATE_CLAMPED   ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_CLAMPED)   \
     : f.kind == GATE_SIGMOID   ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_SIGMOID)   \
                                : FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_ERF))

CLONES static void forward(void *y, const void *x, const void *up, int64_t at, int64_t n, struct gate f, int32_t dtype)
{
    FOR_KIND(forward_typed, y, x, up, at, n, f);
}

INLINE void backward_typed(void *x, void *up, void *dy, int64_t at, int64_t n, struct gate f, int32_t kind, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++) {
        float slope, up_slope, d = row_get(dy, j, dtype), g = gated(row_get(x, j, dtype), &slope, f, kind);
        float u = multiplier(row_get(up, j, dtype), &up_slope, f, kind);
        row_set(up, j, dtype, d * g * up_slope);
        row_set(x, j, dtype, d * u * slope);
        row_set(dy, j, dtype, g * u);
    }
}

CLONES static void backward(void *x, void *up, void *dy, int64_t at, int64_t n, struct gate f, int32_t dtype)
{
    FOR_KIND(backward_typed, x, up, dy, at, n, f);
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
