// Soft caps of scores in CUDA kernels: score = cap * tanh(scale * product / cap). Private to src/attention.
//
// With a cap, products first become t = tanh(...). From there on t stands for the product and cap for the scale; the gradient of
// the product gets the factor 1 - t^2.
#ifndef LTRAIN_ATTENTION_CUDA_CAP_CUH
#define LTRAIN_ATTENTION_CUDA_CAP_CUH

#include "attention/cuda_kernels.h"
#include "device/cuda/ptx.cuh"

// Factors of the scores.
struct attn_scores {
    float log2;  // (scale or cap) * log2(e): p = exp2(log2 * x - ...) with x = product or t
    float inner; // exp2(inner * product) = exp(2 * scale * product / cap); 0: no cap
};

static inline attn_scores attn_scores_of(const struct op_attrs *a)
{
    const float log2_e = 1.44269504f, scale = a->attn.scale, cap = a->attn.cap;
    return cap > 0.0f ? attn_scores{cap * log2_e, 2.0f * log2_e * scale / cap} : attn_scores{scale * log2_e, 0.0f};
}

// Returns t of a product. Its error is absolute, some 2e-7 of the cap in the score, as exponents need it.
static __device__ __forceinline__ float attn_cap_tanh(float product, const attn_scores &s)
{
    return fmaf(-2.0f, rcp(1.0f + ex2(s.inner * product)), 1.0f);
}

// Returns 1 - t^2; 0 for t = -inf, which masks leave.
static __device__ __forceinline__ float attn_cap_slope(float t)
{
    return fmaxf(fmaf(-t, t, 1.0f), 0.0f);
}

#endif
