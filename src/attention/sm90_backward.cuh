/* Parameters and helpers that the kernels of the Hopper backward share. */
#ifndef LTRAIN_ATTENTION_SM90_BACKWARD_CUH
#define LTRAIN_ATTENTION_SM90_BACKWARD_CUH

#include "attention/cuda_kernels.h"
#include "attention/sm90_tile.cuh"

struct backward_params {
    attn_mask mask;
    const attn_row_stat *stat; /* [hq, rows_padded] */
    const attn_row_span *keys; /* [sk]: the *queries* [from, to) that attend a key */
    float *dq, *dk, *dv;       /* [sq, hq, head_dim], [sk, hk, head_dim], [sk, hk, value_dim] */
    int *counter;              /* number of tiles taken so far */
    uint32_t *turns;           /* [hq, query tiles]: the next key tile to add to this dQ (order_dq) */
    int64_t rows_padded;
    int first, end; /* this launch's segment of the queries */
    int hq, hk, head_dim, value_dim, tiles;
    int heads_at_once; /* number of KV heads among which tiles alternate */
    int accumulate;    /* 1: add to dk and dv */
    float scale;
    attn_scores scores;
};

/* A tile, as the producer describes it to the consumers. */
struct backward_tile {
    int row, head; /* row < 0: no more tiles */
    attn_range range;
};

INLINE float probability(float s, float scale_log2, float lse2)
{
    return ex2(fmaf(s, scale_log2, -lse2));
}

/* Stores scale * x, a fragment [64 x D] from row `row` on, into out [rows, heads, width], or adds it. */
template <int D>
INLINE void store_gradient(float *out, const float (&x)[D / 2], float scale, int row, int rows, int head, int heads, int width,
                           int accumulate)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = row + fragment_row() + 8 * r;
        if (at >= rows)
            continue;
        float *line = out + ((int64_t)at * heads + head) * width;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            float2 *to = reinterpret_cast<float2 *>(line + 8 * j + threadIdx.x % 4 * 2);
            float2 y = make_float2(x[4 * j + 2 * r] * scale, x[4 * j + 2 * r + 1] * scale);
            if (8 * j >= width)
                break;
            if (accumulate) {
                const float2 old = *to;
                y.x += old.x;
                y.y += old.y;
            }
            *to = y;
        }
    }
}

#endif
