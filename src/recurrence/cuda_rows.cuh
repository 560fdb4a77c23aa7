/* Elements in their storage type, and functions of gates. Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_CUDA_ROWS_CUH
#define LTRAIN_RECURRENCE_CUDA_ROWS_CUH

#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"
#include "recurrence/cuda_layout.h"

#include <math.h>
#include <string.h>

namespace
{

__device__ __forceinline__ float get(const float *x, int64_t at)
{
    return x[at];
}

__device__ __forceinline__ float get(const bf16 *x, int64_t at)
{
    const uint32_t bits = (uint32_t)x[at] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

__device__ __forceinline__ void put(float *x, int64_t at, float value)
{
    x[at] = value;
}

__device__ __forceinline__ void put(bf16 *x, int64_t at, float value)
{
    x[at] = (bf16)pack_bf16(value, 0.0f);
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Multiplies by a factor; exactly 0 if that is 0. */
__device__ __forceinline__ float scaled(float factor, float x)
{
    return factor == 0.0f ? 0.0f : factor * x;
}

template <typename V> __device__ __forceinline__ V warp_sum(V v)
{
#pragma unroll
    for (int half = LT_WARP / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(LT_FULL_MASK, v, half);
    return v;
}

} // namespace

/* Refuses a dtype that is no storage type of kernels (ERR_INVALID). */
static inline enum status check_storage(const char *op, int32_t dtype)
{
    if (dtype == F32 || dtype == BF16)
        return OK;
    return status_fail(ERR_INVALID, "%s on cuda: dtype %d is neither F32 nor BF16", op, (int)dtype);
}

#endif
