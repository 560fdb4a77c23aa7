/* GELU's factor phi, where gelu(x) = x phi(x), by erf or its tanh approximation, and the slope of gelu. */
#ifndef LTRAIN_OPS_GELU_PHI_H
#define LTRAIN_OPS_GELU_PHI_H

#include "ops/vexp.h"

static const float SQRT_2_PI = 0.797884561f, CUBIC = 0.044715f, SQRT_HALF = 0.707106781f, INV_SQRT_2PI = 0.398942280f;

/* Clamps to |x| <= 30, beyond which both gelus are x or 0 in fp32; this keeps the cube and the square finite. */
INLINE float clamp(float x)
{
    x = x < -30.0f ? -30.0f : x;
    return x > 30.0f ? 30.0f : x;
}

/* Returns sigmoid(2 u(x)); *slope = 2 u'(x). */
INLINE float tanh_phi(float x, float *slope)
{
    float c = clamp(x), square = c * c;
    *slope = 2.0f * SQRT_2_PI * fmaf(3.0f * CUBIC, square, 1.0f);
    return vsigmoid(2.0f * SQRT_2_PI * c * fmaf(CUBIC, square, 1.0f));
}

/* Returns Phi by erf: a polynomial near 0, beyond it erfc(|z|) = exp(q(|z|)) with a polynomial q (fitted by N. Juffa). */
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

/* Returns gelu'(x), given phi = erf_phi(x). */
INLINE float erf_slope(float x, float phi)
{
    float c = clamp(x);
    return fmaf(c, INV_SQRT_2PI * vexp(-0.5f * c * c), phi);
}

/* Returns gelu'(x), given phi = tanh_phi(x, &slope). */
INLINE float tanh_slope(float x, float slope, float phi)
{
    return fmaf(clamp(x) * slope, phi * (1.0f - phi), phi);
}

#endif
