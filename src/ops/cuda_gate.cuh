/* Functions of gates and their derivatives. Private to src/ops. */
#ifndef LTRAIN_OPS_CUDA_GATE_CUH
#define LTRAIN_OPS_CUDA_GATE_CUH

#include "ops/cuda_gelu.cuh"

namespace
{

/* Parameters of GATE_CLAMPED. */
struct clamps {
    float limit, alpha;
};

/* Returns f(x); *slope: its derivative. */
template <int KIND> __device__ __forceinline__ float gated(float x, float *slope, const clamps &of)
{
    if constexpr (KIND == GATE_CLAMPED) {
        const float c = x > of.limit ? of.limit : x, s = sigmoid(of.alpha * c);
        *slope = x > of.limit ? 0.0f : s * fmaf(of.alpha * c, 1.0f - s, 1.0f);
        return c * s;
    } else if constexpr (KIND == GATE_IDENTITY) {
        *slope = 1.0f;
        return x;
    } else if constexpr (KIND == GATE_ALONE) {
        const float r = x < 0.0f ? 0.0f : x;
        *slope = 2.0f * r;
        return r * r;
    } else if constexpr (KIND == GATE_SIGMOID) {
        const float s = sigmoid(x);
        *slope = s * (1.0f - s);
        return s;
    } else if constexpr (KIND == GATE_SILU) {
        const float s = sigmoid(x);
        *slope = s * fmaf(x, 1.0f - s, 1.0f);
        return x * s;
    } else {
        const float p = phi < KIND == GATE_GELU_TANH ? GELU_TANH : GELU_ERF > (x, slope);
        *slope += p;
        return x * p;
    }
}

/* Returns the factor that multiplies f(x), made from `up`; *slope: its derivative. */
template <int KIND> __device__ __forceinline__ float multiplier(float up, float *slope, const clamps &of)
{
    *slope = 1.0f;
    if constexpr (KIND == GATE_CLAMPED) {
        const bool inside = !(up > of.limit || up < -of.limit); /* NaN stays NaN */
        *slope = inside ? 1.0f : 0.0f;
        return (inside ? up : up > 0.0f ? of.limit : -of.limit) + 1.0f;
    }
    return up;
}

/* Holds a gate's kind as a type, for kernels that are made for each. */
template <int KIND> struct gate_kind_of {
    static constexpr int value = KIND;
};

/* Calls run with the gate's kind as a type. ERR_INVALID names the op: there is no such gate. */
template <typename F> enum status for_gate(const char *op, int kind, F run)
{
    switch (kind) {
    case GATE_SILU:
        return run(gate_kind_of<GATE_SILU>{});
    case GATE_GELU_TANH:
        return run(gate_kind_of<GATE_GELU_TANH>{});
    case GATE_GELU_ERF:
        return run(gate_kind_of<GATE_GELU_ERF>{});
    case GATE_CLAMPED:
        return run(gate_kind_of<GATE_CLAMPED>{});
    case GATE_SIGMOID:
        return run(gate_kind_of<GATE_SIGMOID>{});
    case GATE_IDENTITY:
        return run(gate_kind_of<GATE_IDENTITY>{});
    case GATE_ALONE:
        return run(gate_kind_of<GATE_ALONE>{});
    }
    return status_fail(ERR_INVALID, "%s on cuda: %d is no gate", op, kind);
}

} // namespace

#endif
