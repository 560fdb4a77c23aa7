/* GELU, forward and backward. */
#include "ops/gelu.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"
#include "ops/vexp.h"

static const float SQRT_2_PI = 0.797884561f, CUBIC = 0.044715f, SQRT_HALF = 0.707106781f, INV_SQRT_2PI = 0.398942280f;

/* Beyond |x| = 30 both gelus are x or 0 in fp32; clamping keeps the cube and the square finite. */
INLINE float clamp(float x)
{
    x = x < -30.0f ? -30.0f : x;
    return x > 30.0f ? 30.0f : x;
}

/* sigmoid(2 u(x)); *slope = 2 u'(x) */
INLINE float tanh_phi(float x, float *slope)
{
    float c = clamp(x), square = c * c;
    *slope = 2.0f * SQRT_2_PI * fmaf(3.0f * CUBIC, square, 1.0f);
    return vsigmoid(2.0f * SQRT_2_PI * c * fmaf(CUBIC, square, 1.0f));
}

/* Phi from erf: a polynomial near 0, and beyond it erfc(|z|) = exp(q(|z|)) with a polynomial q (fitted by N. Juffa). */
INLINE float erf_phi(float x)
{
    float z = clamp(x) * SQRT_HALF, t = fabsf(z), s = z * z;
    float p = -5.96761703e-4f;
    p = fmaf(p, s, 4.99119423e-3f);
    p = fmaf(p, s, -2.67681349e-2f);
    p = fmaf(p, s, 1.12819925e-1f);
    p = fmaf(p, s, -3.76125336e-1f);
    p = fmaf(p, s, 1.28379166e-1f);
    float near = fmaf(p, z, z); /* erf(z) */
    float q = fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    q = fmaf(q, s, u);
    q = fmaf(q, t, -1.06777877e-1f);
    q = fmaf(q, t, -6.34846687e-1f);
    q = fmaf(q, t, -1.28717512e-1f);
    q = fmaf(q, t, -t);
    float tail = 0.5f * vexp(q); /* erfc(|z|) / 2 */
    float far = z < 0.0f ? tail : 1.0f - tail;
    return t > 0.927734375f ? far : fmaf(0.5f, near, 0.5f);
}

INLINE void forward_f32(float *y, const float *x, int64_t n, enum gelu_kind kind)
{
    if (kind == GELU_ERF) {
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

/* n <= ROWS_BLOCK elements. BF16 by way of a block in fp32: in one loop with the conversions GCC runs out of registers, and takes
 * half of each. */
CLONES static void forward(void *y, const void *x, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
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

INLINE void backward_f32(float *x, float *dy, int64_t n, enum gelu_kind kind)
{
    if (kind == GELU_ERF) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float v = x[j], c = clamp(v), phi = erf_phi(v);
            x[j] = dy[j] * fmaf(c, INV_SQRT_2PI * vexp(-0.5f * c * c), phi);
            dy[j] = v * phi;
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float slope, v = x[j], phi = tanh_phi(v, &slope);
            x[j] = dy[j] * fmaf(clamp(v) * slope, phi * (1.0f - phi), phi);
            dy[j] = v * phi;
        }
    }
}

CLONES static void backward(void *x, void *dy, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
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

void ops_gelu(void *y, const void *x, int64_t n, enum gelu_kind kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        forward(y, x, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

void ops_gelu_grad(void *x, void *dy, int64_t n, enum gelu_kind kind, int32_t dtype)
{
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++)
        backward(x, dy, b * ROWS_BLOCK, rows_block_size(b, n), kind, dtype);
}

enum status ops_cpu_gelu(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_gelu(arg[0], arg[1], a->act.rows * a->act.dim, (enum gelu_kind)a->act.kind, a->act.dtype);
    return OK;
}

enum status ops_cpu_gelu_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    ops_gelu_grad(arg[0], arg[1], a->act.rows * a->act.dim, (enum gelu_kind)a->act.kind, a->act.dtype);
    return OK;
}
