/* GELU, forward and backward. */
#include "ops/gelu.h"

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

INLINE void forward_typed(void *y, const void *x, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
{
    if (kind == GELU_ERF) {
#pragma omp simd
        for (int64_t j = at; j < at + n; j++) {
            float v = row_get(x, j, dtype);
            row_set(y, j, dtype, v * erf_phi(v));
        }
    } else {
#pragma omp simd
        for (int64_t j = at; j < at + n; j++) {
            float slope, v = row_get(x, j, dtype);
            row_set(y, j, dtype, v * tanh_phi(v, &slope));
        }
    }
}

CLONES static void forward(void *y, const void *x, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
{
    FOR_DTYPE(dtype, forward_typed, y, x, at, n, kind);
}

INLINE void backward_typed(void *x, void *dy, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
{
    if (kind == GELU_ERF) {
#pragma omp simd
        for (int64_t j = at; j < at + n; j++) {
            float v = row_get(x, j, dtype), d = row_get(dy, j, dtype), c = clamp(v), phi = erf_phi(v);
            row_set(x, j, dtype, d * fmaf(c, INV_SQRT_2PI * vexp(-0.5f * c * c), phi));
            row_set(dy, j, dtype, v * phi);
        }
    } else {
#pragma omp simd
        for (int64_t j = at; j < at + n; j++) {
            float slope, v = row_get(x, j, dtype), d = row_get(dy, j, dtype), phi = tanh_phi(v, &slope);
            row_set(x, j, dtype, d * fmaf(clamp(v) * slope, phi * (1.0f - phi), phi));
            row_set(dy, j, dtype, v * phi);
        }
    }
}

CLONES static void backward(void *x, void *dy, int64_t at, int64_t n, enum gelu_kind kind, int32_t dtype)
{
    FOR_DTYPE(dtype, backward_typed, x, dy, at, n, kind);
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
