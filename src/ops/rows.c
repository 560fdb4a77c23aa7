/* Conversions between bf16 and fp32. */
#include "ops/rows.h"

#include "ops/simd.h"

CLONES void rows_from_bf16(float *out, const bf16 *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

/* bf16_from_float() without its branch, so that it vectorises. */
CLONES void rows_to_bf16(bf16 *out, const float *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &in[i], 4);
        uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        uint32_t nan = (u >> 16) | 0x40u;
        out[i] = (bf16)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}
