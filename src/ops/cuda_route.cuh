/* A warp's scores of one token's experts, with the bits of the CPU's: sums in 16 lanes (simd.h), exponentials of vexp.h, no products
 * fused with additions. Private to src/ops.
 *
 * Expert e = LT_WARP i + lane is element i of its lane; elements behind the last expert are 0 in sums and the least in choices. */
#ifndef LTRAIN_OPS_CUDA_ROUTE_CUH
#define LTRAIN_OPS_CUDA_ROUTE_CUH

#include "ops/cuda_vec.cuh"
#include "ops/route.h"
#include "ops/vexp.h"

namespace
{

/* Returns the sum over all experts, added up in 16 lanes. */
template <int PER> __device__ __forceinline__ float sum_of_experts(const float (&v)[PER])
{
    const bool low = threadIdx.x % LT_WARP < LT_WARP / 2;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const float other = __shfl_xor_sync(LT_FULL_MASK, v[i], LT_WARP / 2);
        sum = __fadd_rn(__fadd_rn(sum, low ? v[i] : other), low ? other : v[i]);
    }
#pragma unroll
    for (int half = LT_WARP / 4; half > 0; half /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(LT_FULL_MASK, sum, half));
    return sum;
}

/* Computes y = softmax(x) over n experts, 0 behind them. A NaN makes all of them NaN. */
template <int PER> __device__ __forceinline__ void softmax(float (&y)[PER], const float (&x)[PER], int n)
{
    const int lane = threadIdx.x % LT_WARP;
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < PER; i++)
        most = i * LT_WARP + lane < n && x[i] > most ? x[i] : most;
#pragma unroll
    for (int half = LT_WARP / 2; half > 0; half /= 2)
        most = fmaxf(most, __shfl_xor_sync(LT_FULL_MASK, most, half));
#pragma unroll
    for (int i = 0; i < PER; i++)
        y[i] = i * LT_WARP + lane < n ? vexp(__fsub_rn(x[i], most)) : 0.0f;
    const float inverse = __fdiv_rn(1.0f, sum_of_experts(y));
#pragma unroll
    for (int i = 0; i < PER; i++)
        y[i] = i * LT_WARP + lane < n ? __fmul_rn(y[i], inverse) : 0.0f;
}

/* Returns a number that grows with the rank of x: NaN ranks above all, -0 as 0. 0 ranks below all. */
__device__ __forceinline__ uint32_t rank_of(float x)
{
    const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the element that ranks highest, of equal ones the first, and lowers its rank to 0. All lanes get the same. */
template <int PER> __device__ __forceinline__ int take_greatest(uint32_t (&rank)[PER])
{
    const int lane = threadIdx.x % LT_WARP;
    uint32_t most = 0;
    int first = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        first = rank[i] > most ? i : first;
        most = rank[i] > most ? rank[i] : most;
    }
    const uint32_t greatest = __reduce_max_sync(LT_FULL_MASK, most);
    const int mine = most == greatest ? first * LT_WARP + lane : INT32_MAX;
    const int taken = (int)__reduce_min_sync(LT_FULL_MASK, (unsigned)mine);
#pragma unroll
    for (int i = 0; i < PER; i++)
        rank[i] = i * LT_WARP + lane == taken ? 0 : rank[i];
    return taken;
}

/* Marks the k greatest of n scores: bit i of a lane stands for its element i. */
template <int PER> __device__ __forceinline__ uint32_t mark_greatest(uint32_t (&rank)[PER], int k)
{
    uint32_t marks = 0;
    for (int j = 0; j < k; j++) {
        const int taken = take_greatest(rank);
        marks |= taken % LT_WARP == (int)threadIdx.x % LT_WARP ? 1u << taken / LT_WARP : 0u;
    }
    return marks;
}

/* Returns the divisor of weights, given their sum. */
__device__ __forceinline__ float divisor_of(const route_shape &s, float sum)
{
    const float raised = __fadd_rn(sum, s.eps);
    return !s.normalise ? 1.0f : raised < s.least ? s.least : raised;
}

/* Reads the attributes; route_shape_of belongs to the CPU's library. */
inline route_shape shape_of(const struct op_attrs *attrs)
{
    route_shape s = {};
    s.rows = attrs->route.rows;
    s.experts = attrs->route.experts;
    s.k = attrs->route.k;
    s.kind = attrs->route.kind;
    s.normalise = attrs->route.normalise;
    s.groups = attrs->route.groups;
    s.group_k = attrs->route.group_k;
    s.ranked = attrs->route.ranked != 0 ? attrs->route.ranked : 2;
    s.accumulate = attrs->route.accumulate;
    s.parts = attrs->route.parts;
    s.scale = attrs->route.scale != 0.0f ? attrs->route.scale : 1.0f;
    s.eps = attrs->route.eps;
    s.least = attrs->route.least;
    s.aux = attrs->route.aux;
    s.logit_factor = attrs->route.logit_factor != 0.0f ? attrs->route.logit_factor : 1.0f;
    return s;
}

inline enum status check_route(const char *op, const route_shape &s)
{
    if (s.experts < 1 || s.experts > ROUTE_EXPERTS || s.k < 1 || s.k > ROUTE_K || s.k > s.experts)
        return status_fail(ERR_INVALID, "%s on cuda: %d of %d experts; at most %d of %d are possible", op, s.k, s.experts,
                           ROUTE_K, ROUTE_EXPERTS);
    if (s.groups > 0 && (s.experts % s.groups != 0 || s.group_k > s.groups || s.experts / s.groups * s.group_k < s.k))
        return status_fail(ERR_INVALID, "%s on cuda: %d of %d experts in %d of %d groups; the groups' experts are too few", op,
                           s.k, s.experts, s.group_k, s.groups);
    return OK;
}

} // namespace

#endif
