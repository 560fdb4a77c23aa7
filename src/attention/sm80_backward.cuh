// Arguments and stores that both backward kernels for sm_80 share. Private to src/attention.
#ifndef LTRAIN_ATTENTION_SM80_BACKWARD_CUH
#define LTRAIN_ATTENTION_SM80_BACKWARD_CUH

#include "attention/cuda_kernels.h"
#include "attention/sm80_tile.cuh"

struct sm80_backward_args {
    float *dq, *dk, *dv;
    const bf16_bits *q, *k, *v, *g; // g: do
    attn_mask mask;
    attn_rows rows;
    int hq, hk, head_dim, value_dim, tiles; // tiles: of queries or keys, whichever blocks own
    int first, end;                         // segment of queries or keys that the launch sums over
    int accumulate;                         // 1: add to dk and dv, or to dq
    float scale;
    attn_scores scores;
};

// Stores two neighbouring fp32 results of an accumulator.
static __device__ __forceinline__ void sm80_put(float *out, float x, float y, int accumulate)
{
    float2 old = accumulate ? *(const float2 *)out : float2{0, 0};
    *(float2 *)out = float2{old.x + x, old.y + y};
}

#endif
