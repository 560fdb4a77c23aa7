/* exp for loops that must vectorise: the same bits in every lane, on every ISA.
 *
 * Reduction x = n ln 2 + r with ln 2 in two parts (Cody and Waite 1980), a polynomial of degree 7 on |r| <= ln 2 / 2, and a
 * scaling by 2^n in two steps, so that results down to the smallest subnormal are right. Relative error below 1.2e-7 (1 ulp) for
 * normal results (tests/ops/test_act.c). exp(-inf) = 0, exp(inf) = inf, NaN stays NaN. */
#ifndef LTRAIN_OPS_VEXP_H
#define LTRAIN_OPS_VEXP_H

#include "ops/inline.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

INLINE float vexp_pow2(int32_t n) /* n from -126 to 128 (which gives infinity); for other n the result is undefined */
{
    uint32_t u = (uint32_t)(n + 127) << 23;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Finds p and n with exp(x) = p * 2^n, 0.7 < p < 1.5. For NaN, p is NaN and n is any number. */
INLINE float vexp_reduce(float x, int32_t *n)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, left in the low mantissa bits */
    float t = fmaf(x, 1.44269504f, shift);
    int32_t bits;
    memcpy(&bits, &t, 4);
    *n = bits - 0x4b400000;
    float k = t - shift;
    float r = fmaf(k, -0x1.62e400p-1f, x);
    r = fmaf(k, -0x1.7f7d1cp-20f, r);
    float p = 1.37805939e-3f;
    p = fmaf(p, r, 8.37312452e-3f);
    p = fmaf(p, r, 4.16695364e-2f);
    p = fmaf(p, r, 1.66664720e-1f);
    p = fmaf(p, r, 4.99999851e-1f);
    p = fmaf(p, r, 1.0f);
    return fmaf(p, r, 1.0f);
}

INLINE float vexp(float x)
{
    x = x < -104.0f ? -104.0f : x; /* below half the smallest subnormal */
    x = x > 89.0f ? 89.0f : x;     /* above the largest float */
    int32_t n;
    float p = vexp_reduce(x, &n);
    int32_t half = n >> 1;
    return p * vexp_pow2(half) * vexp_pow2(n - half);
}

/* Returns 1 / (1 + exp(-x)). One scaling step suffices: below -87 the exponential does not change the sum, and from 88.4 on (n is
 * 128, 2^n infinite) the quotient is 0 instead of 4e-39. */
INLINE float vsigmoid(float x)
{
    x = x > 87.0f ? 87.0f : x;
    x = x < -89.0f ? -89.0f : x;
    int32_t n;
    float p = vexp_reduce(-x, &n);
    return 1.0f / (1.0f + p * vexp_pow2(n));
}

/* Returns tanh(x): near 0 a polynomial (Moshier's Cephes, tanhf), else from the exponential; relative error below 2e-7. */
INLINE float vtanh(float x)
{
    float a = x < 0.0f ? -x : x, z = x * x;
    float p = -5.70498872745e-3f;
    p = fmaf(p, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    float near = fmaf(p * z, x, x), far = 1.0f - 2.0f / (vexp(2.0f * a) + 1.0f);
    far = x < 0.0f ? -far : far;
    return a < 0.625f ? near : far;
}

#endif
