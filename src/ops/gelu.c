/* GELU, ReLU and its square, forward and backward. */
#include "ops/gelu.h"

#include "ops/gelu_phi.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

/* Returns max(x, 0); NaN stays NaN. */
INLINE float positive(float x)
{
    return x < 0.0f ? 0.0f : x;
}

INLINE void forward_f32(float *y, const float *x, int64_t n, enum activation_kind kind)
{
    if (kind == RELU_SQUARED) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = positive(x[j]) * positive(x[j]);
    } else if (kind == RELU) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = positive(x[j]);
    } else if (kind == GELU_ERF) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = x[j] * erf_phi(x[j]);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float slope, v = x[j];
            y[j] = v * tanh_phi(v, &slope);
        }
    }
}

/* Computes n <= ROWS_BLOCK elements. BF16 is converted in a block of its own: with conversions in the same loop GCC runs out of
 * registers and uses half-width vectors. */
CLONES static void forward(void *y, const void *x, int64_t at, int64_t n, enum activation_kind kind, int32_t dtype)
{
    float block[ROWS_BLOCK];
    const float *in = rows_read(x, at, n, dtype, block);
    if (dtype == F32) {
        forward_f32((float *)y + at, in, n, kind);
    } else {
        forward_f32(block, in, n, kind);
        rows_to_bf16((bf16 *)y + at, block, n);
    }
}

INLINE void backward_f32(float *x, float *dy, int64_t n, enum activation_kind kind)
{
    if (kind == RELU_SQUARED) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = positive(x[j]);
            x[j] = dy[j] * (2.0f * v);
            dy[j] = v * v;
        }
    } else if (kind == RELU) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = positive(x[j]);
            x[j] = x[j] <= 0.0f ? 0.0f : dy[j]; /* a NaN's gradient is dy, too */
            dy[j] = v;
        }
    } else if (kind == GELU_ERF) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = x[j], phi = erf_phi(v);
            x[j] = dy[j] * erf_slope(v, phi);
            dy[j] = v * phi;
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float slope, v = x[j], phi = tanh_phi(v, &slope);
            x[j] = dy[j] * tanh_slope(v, slope, phi);
            dy[j] = v * phi;
        }
    }
}

CLONES static void backward(void *x, void *dy, int64_t at, int64_t n, enum activation_kind kind, int32_t dtype)
{
    float block_x[ROWS_BLOCK], block_dy[ROWS_BLOCK];
    if (dtype == F32) {
        backward_f32((float *)x + at, (float *)dy + at, n, kind);
    } else {
        rows_from_bf16(block_x, (bf16 *)x + at, n);
        rows_from_bf16(block_dy, (bf16 *)dy + at, n);
        backward_f32(block_x, block_dy, n, kind);
        rows_to_bf16((bf16 *)x + at, block_x, n);
        rows_to_bf16((bf16 *)dy + at, block_dy, n);
    }
}

void ops_gelu(void *y, const void *x, int64_t n, enum activation_kind kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        forward(y, x, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

void ops_gelu_grad(void *x, void *dy, int64_t n, enum activation_kind kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        backward(x, dy, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

enum status ops_cpu_gelu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_gelu(arg[0], arg[1], a->act.rows * a->act.dim, (enum activation_kind)a->act.kind, a->act.dtype);
    return OK;
}

enum status ops_cpu_gelu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_gelu_grad(arg[0], arg[1], a->act.rows * a->act.dim, (enum activation_kind)a->act.kind, a->act.dtype);
    return OK;
}
