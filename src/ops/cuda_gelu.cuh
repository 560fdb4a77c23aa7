/* GELU's factor Phi(x) by erf or tanh, and x * Phi'(x). Private to src/ops. */
#ifndef LTRAIN_OPS_CUDA_GELU_CUH
#define LTRAIN_OPS_CUDA_GELU_CUH

#include "device/cuda/ptx.cuh"
#include "ops/cuda_vec.cuh"

namespace
{

/* Clamps to |x| <= 30, beyond which both slopes are 0 in fp32; this keeps the cube and the square finite. */
__device__ __forceinline__ float clamped(float x)
{
    x = x < -30.0f ? -30.0f : x; /* not fminf and fmaxf: NaN stays NaN */
    return x > 30.0f ? 30.0f : x;
}

/* Returns log2 of the normal distribution's upper tail 1 - Phi(t), t >= 0. Fitted for the least maximum error of t * tail
 * (1.4e-8) on [0, 6.5]; falls to -inf beyond. */
__device__ __forceinline__ float log2_tail(float t)
{
    float p = fmaf(-2.27595842e-6f, t, 3.29691538e-5f);
    p = fmaf(p, t, -1.57284754e-4f);
    p = fmaf(p, t, -2.02462776e-4f);
    p = fmaf(p, t, 7.14275753e-3f);
    p = fmaf(p, t, -5.25464155e-2f);
    p = fmaf(p, t, -0.459193051f);
    p = fmaf(p, t, -1.15110695f);
    return fmaf(p, t, -0.99999994f);
}

/* Returns Phi(x); *slope = x * Phi'(x). */
template <int KIND> __device__ __forceinline__ float phi(float x, float *slope)
{
    float c = clamped(x);
    if constexpr (KIND == GELU_TANH) {
        const float twice_sqrt_2_pi = 1.595769122f, cubic = 0.044715f, in_log2 = -1.595769122f * 1.44269504f;
        float p = rcp(1.0f + ex2(x * fmaf(in_log2 * cubic, x * x, in_log2)));
        *slope = c * (twice_sqrt_2_pi * fmaf(3.0f * cubic, c * c, 1.0f)) * (p * (1.0f - p));
        return p;
    } else {
        const float tail = ex2(log2_tail(fabsf(x)));
        *slope = c * (0.398942280f * ex2(-0.721347520f * c * c));
        return x < 0.0f ? tail : 1.0f - tail; /* computed without 1 - tail, so that no digits cancel for negative x */
    }
}

} // namespace

#endif
