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

/* --- Weighed rows --- */

INLINE void scale_typed(void *y, int64_t at, int64_t n, float factor, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++)
        row_set(y, j, dtype, row_get(y, j, dtype) * factor);
}

CLONES static void scale(void *y, int64_t at, int64_t n, float factor, int32_t dtype)
{
    FOR_DTYPE(dtype, scale_typed, y, at, n, factor);
}

/* Adds the products of dy with the values of a row to the partial sums. */
INLINE void dot_typed(float *sum, const void *x, const void *up, const void *dy, int64_t at, int64_t n, struct gate f,
                      int32_t kind, int32_t dtype)
{
    for (int64_t j = 0; j < n; j += LANES) {
        const int64_t lanes = min_i64(LANES, n - j);
#pragma omp simd
        for (int64_t l = 0; l < lanes; l++) {
            float slope, g = gate_value(row_get(x, at + j + l, dtype), &slope, f, kind);
            sum[l] += row_get(dy, at + j + l, dtype) * g * gate_multiplier(row_get(up, at + j + l, dtype), &slope, f, kind);
        }
    }
}

CLONES static void dot(float *sum, const void *x, const void *up, const void *dy, int64_t at, int64_t n, struct gate f,
                       int32_t dtype)
{
    FOR_GATE(dot_typed, sum, x, up, dy, at, n, f);
}

void ops_swiglu_weighed(const struct weighed_rows *s, void *y, const void *gate, const void *up, const float *scalar)
{
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t r = 0; r < s->rows; r++) {
        forward(y, gate, up, r * s->dim, s->dim, s->f, s->dtype);
        scale(y, r * s->dim, s->dim, vsigmoid(scalar[r]), s->dtype);
    }
}

void ops_swiglu_weighed_grad(const struct weighed_rows *s, void *gate, void *up, void *dy, float *scalar)
{
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t r = 0; r < s->rows; r++) {
        const float factor = vsigmoid(scalar[r]);
        float sum[LANES] = {0}, all = 0;
        dot(sum, gate, up, dy, r * s->dim, s->dim, s->f, s->dtype);
        for (int l = 0; l < LANES; l++)
            all += sum[l];
        scalar[r] = all * factor * (1.0f - factor);
        scale(dy, r * s->dim, s->dim, factor, s->dtype);
        backward(gate, up, dy, r * s->dim, s->dim, s->f, s->dtype);
        scale(dy, r * s->dim, s->dim, factor, s->dtype);
    }
}

static struct gate gate_of(const struct op_attrs *a)
{
    return (struct gate){a->act.kind, a->act.limit, a->act.alpha};
}

enum status ops_cpu_swiglu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    if (arg[3])
        ops_swiglu_weighed(&(struct weighed_rows){a->act.rows, a->act.dim, gate_of(a), a->act.dtype}, arg[0], arg[1], arg[2],
                           arg[3]);
    else
        ops_swiglu(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, gate_of(a), a->act.dtype);
    return OK;
}

enum status ops_cpu_swiglu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    if (arg[3])
        ops_swiglu_weighed_grad(&(struct weighed_rows){a->act.rows, a->act.dim, gate_of(a), a->act.dtype}, arg[0], arg[1], arg[2],
                                arg[3]);
    else
        ops_swiglu_grad(arg[0], arg[1], arg[2], a->act.rows * a->act.dim, gate_of(a), a->act.dtype);
    return OK;
}
