/* Numbers of 8 bits in blocks of 256 (base/blocks8.h), bit for bit: a warp packs and unpacks a block, each thread some elements.
 * Private to src/ops. */
#ifndef LTRAIN_OPS_CUDA_BLOCKS8_CUH
#define LTRAIN_OPS_CUDA_BLOCKS8_CUH

#include "base/blocks8.h"
#include "ops/cuda_reduce.cuh"

namespace
{

/* Steps of a lookup table, indexed by a positive number's exponent and first mantissa bits; a step narrows down the number's
 * code, as in blocks8.c. */
constexpr int STEP_BITS = 7, LOWEST = (127 - 24) << STEP_BITS, STEPS = 24 << STEP_BITS;

/* Both kinds' values, ascending, as a kernel argument. */
struct blocks8_values {
    float of[2][BLOCK8_VALUES];
};

/* Lookup tables; every thread block has its own. */
struct blocks8_maps {
    float value[2][BLOCK8_VALUES];
    alignas(4) uint8_t code[2][STEPS]; /* code of the largest value that is at most the step's first number */
};

inline blocks8_values blocks8_all_values()
{
    blocks8_values v;
    for (int kind = 0; kind < 2; kind++)
        memcpy(v.of[kind], blocks8_map((enum blocks8_kind)kind), sizeof v.of[kind]);
    return v;
}

/* Returns the index of the largest value that is at most x, by halving; map[0] <= x. */
__device__ __forceinline__ int search(const float *map, float x)
{
    int low = 0;
#pragma unroll
    for (int half = BLOCK8_VALUES / 2; half > 0; half /= 2)
        low += map[low + half] <= x ? half : 0;
    return low;
}

/* Makes the tables. Called by all threads of a block; ends in a barrier. */
__device__ __forceinline__ void make_maps(blocks8_maps &s, const blocks8_values &v)
{
    for (int i = threadIdx.x; i < 2 * BLOCK8_VALUES; i += blockDim.x)
        s.value[i / BLOCK8_VALUES][i % BLOCK8_VALUES] = v.of[i / BLOCK8_VALUES][i % BLOCK8_VALUES];
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * STEPS / 4; i += blockDim.x) {
        const int kind = i / (STEPS / 4), first = i % (STEPS / 4) * 4;
        uint32_t word = 0;
#pragma unroll
        for (int k = 0; k < 4; k++)
            word |= (uint32_t)search(s.value[kind], float_of_bits((uint32_t)(first + k + LOWEST) << (23 - STEP_BITS))) << 8 * k;
        reinterpret_cast<uint32_t *>(s.code[kind])[first / 4] = word;
    }
    __syncthreads();
}

template <int KIND> __device__ __forceinline__ float unpacked(const blocks8_maps &s, float scale, uint32_t code)
{
    const float x = __fmul_rn(s.value[KIND][code], scale);
    return KIND == BLOCKS8_SIGNED ? x : __fmul_rn(x, x);
}

/* Returns the code of x, a number divided by its block's scale. random: 16 bits for rounding. */
template <int KIND> __device__ __forceinline__ uint32_t code_of(const blocks8_maps &s, float x, uint32_t random)
{
    const float *map = s.value[KIND];
    const int step = (int)(__float_as_uint(x) >> (23 - STEP_BITS)) - LOWEST;
    int code;
    if (x < 0.0f || step < 0 || step >= STEPS) { /* negative, 1, or too small for the table */
        code = x < map[0] ? 0 : search(map, x);
    } else {
        code = s.code[KIND][step];
        code += map[code + 1] <= x;
    }
    if (code == BLOCK8_VALUES - 1 || x <= map[code])
        return (uint32_t)code;
    if (KIND == BLOCKS8_SQUARES && code == 0)
        return 1; /* 1, not 0: only the number 0 becomes 0 */
    const float above = __fsub_rn(x, map[code]), apart = __fsub_rn(map[code + 1], map[code]);
    return (uint32_t)code + (__fmul_rn((float)random, apart) < __fmul_rn(above, 65536.0f));
}

/* Replaces a thread's numbers by the values to be coded, and returns the block's scale. Elements beyond the block are NaN. */
template <int KIND, int RUNS, int N> __device__ __forceinline__ float scale_of(float (&x)[RUNS][N])
{
    float most = 0.0f;
    bool positive = false;
#pragma unroll
    for (int k = 0; k < RUNS * N; k++) {
        float &f = x[k / N][k % N];
        if (KIND == BLOCKS8_SQUARES)
            f = __fsqrt_rn(f);
        most = fmaxf(most, fabsf(f));
    }
    most = warp_max(most);
#pragma unroll
    for (int k = 0; k < RUNS * N; k++)
        positive = positive || x[k / N][k % N] == most;
    return __any_sync(LT_FULL_MASK, positive) ? most : -most;
}

/* Stores the codes of a run of N numbers; random: 16 bits for each. */
template <int KIND, int N>
__device__ __forceinline__ void store_codes(uint8_t *code, const blocks8_maps &s, float scale, const float (&x)[N],
                                            const uint32_t (&random)[N])
{
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < N; k++)
        word |= code_of<KIND>(s, fabsf(scale) > 0.0f ? __fdiv_rn(x[k], scale) : 0.0f, random[k]) << 8 * k;
    if constexpr (N == 4)
        *reinterpret_cast<uint32_t *>(code) = word;
    else
        *code = (uint8_t)word;
}

template <int KIND, int N>
__device__ __forceinline__ void load_codes(float (&out)[N], const uint8_t *code, const blocks8_maps &s, float scale)
{
    static_assert(N == 4 || N == 1, "a word or a byte");
    uint32_t word;
    if constexpr (N == 4)
        word = *reinterpret_cast<const uint32_t *>(code);
    else
        word = *code;
#pragma unroll
    for (int k = 0; k < N; k++)
        out[k] = unpacked<KIND>(s, scale, word >> 8 * k & 0xffu);
}

} // namespace

#endif
