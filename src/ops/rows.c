/* Conversions between bf16 and fp32. */
#include "ops/rows.h"

#include "ops/simd.h"

CLONES void rows_from_bf16(float *out, const bf16 *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

CLONES void rows_to_bf16(bf16 *out, const float *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = row_round(in[i]);
}
