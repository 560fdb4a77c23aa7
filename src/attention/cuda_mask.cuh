// The mask of a tile of a CUDA kernel: which keys no query of the tile attends, or all queries do, and likewise for queries. Private to
// src/attention.
//
// lo and hi are non-decreasing. So for the query rows [q, q_last] of a tile, keys outside [from(q), to(q_last)) are attended by
// none of them, keys inside [from(q_last), to(q)) by all.
//
// For the keys [k, k_last] of a tile, queries outside [first to > k, first from > k_last) attend none of them. Queries inside
// [first to > k_last, first from > k) attend all.
#ifndef LTRAIN_ATTENTION_CUDA_MASK_CUH
#define LTRAIN_ATTENTION_CUDA_MASK_CUH

#include "device/cuda/ptx.cuh"

#include <stdint.h>

struct attn_mask {
    const int32_t *lo, *hi; // [sq], global token numbers, both ends inclusive
    int32_t sq, sk;
    int64_t k0;
};

// Returns the first of the keys [attn_from(q), attn_to(q)) of this call; attn_to may be less than attn_from: no keys.
static __device__ __forceinline__ int attn_from(const attn_mask &m, int q)
{
    int64_t x = (int64_t)m.lo[q] - m.k0;
    return (int)(x < 0 ? 0 : x > m.sk ? m.sk : x);
}

static __device__ __forceinline__ int attn_to(const attn_mask &m, int q)
{
    int64_t x = (int64_t)m.hi[q] - m.k0 + 1;
    return (int)(x < 0 ? 0 : x > m.sk ? m.sk : x);
}

enum attn_tile { ATTN_EMPTY, ATTN_FULL, ATTN_PARTIAL };

// A tile's partners along the other axis: none outside [begin, end), all inside [full_begin, full_end). Any of them may be empty.
struct attn_range {
    int begin, end, full_begin, full_end;
};

static __device__ __forceinline__ attn_tile attn_classify(const attn_range &r, int at, int n)
{
    if (at + n <= r.begin || at >= r.end)
        return ATTN_EMPTY;
    return at >= r.full_begin && at + n <= r.full_end ? ATTN_FULL : ATTN_PARTIAL;
}

// Returns the keys of the query rows [q, q + n), clipped to sq (q < sq). Rows at or beyond sq attend nothing but do not make a
// tile partial: kernels never store them, or give them lse2 = +inf.
static __device__ __forceinline__ attn_range attn_keys_of(const attn_mask &m, int q, int n)
{
    int last = (q + n < m.sq ? q + n : m.sq) - 1;
    return attn_range{attn_from(m, q), attn_to(m, last), attn_from(m, last), attn_to(m, q)};
}

// Finds the first query row whose attn_to (TO) or attn_from (!TO) exceeds k, or sq. All 32 lanes of a warp search together,
// 33-ary.
template <bool TO> static __device__ int attn_search(const attn_mask &m, int k)
{
    int lane = threadIdx.x % 32, low = 0, n = m.sq; // the answer is in [low, low + n]
    while (n > 0) {
        int step = (n + 32) / 33, at = low + step * (lane + 1) - 1;
        bool beyond = at >= low + n || (TO ? attn_to(m, at) : attn_from(m, at)) > k;
        unsigned votes = __ballot_sync(LT_FULL_MASK, beyond);
        int below = votes ? __ffs(votes) - 1 : 32; // number of probes that do not exceed k
        int top = low + n;
        low += step * below;
        int high = low + step - (votes ? 1 : 0);
        n = (high < top ? high : top) - low;
    }
    return low;
}

#endif
