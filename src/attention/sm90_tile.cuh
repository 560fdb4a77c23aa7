/* Building blocks of the Hopper attention kernels: tiles in shared memory, pipelines, the products of a warpgroup, its fragments.
 *
 * A tile [ROWS][D] lies in shared memory as chunks [ROWS][64] with the 128-byte swizzle, as TMA writes it (D = 96: two chunks,
 * the second half used). It serves as either operand: K-major if the product sums over its columns (q k^T), MN-major if it sums
 * over its rows (p v).
 *
 * A fragment is the accumulator of a warpgroup's 64-row product: acc[4 * j + 2 * r + c] of thread 32 * w + lane is the element of
 * row 16 * w + lane / 4 + 8 * r, column 8 * j + 2 * (lane % 4) + c. Each thread holds two rows (r); a quad of lanes holds a row. */
#ifndef LTRAIN_ATTENTION_SM90_TILE_CUH
#define LTRAIN_ATTENTION_SM90_TILE_CUH

#include "attention/cuda_cap.cuh"
#include "attention/cuda_mask.cuh"
#include "device/cuda/arch.cuh"
#include "device/cuda/ptx.cuh"

#include <math.h>

#define CHUNK 64 /* columns of bf16 in 128 bytes, the span of the swizzle */
#define WARPGROUP 128
#define INLINE static __device__ __forceinline__

template <int ROWS, int D> struct alignas(1024) smem_tile {
    static constexpr int chunks = (D + CHUNK - 1) / CHUNK;
    static constexpr uint32_t bytes = ROWS * CHUNK * chunks * 2;
    uint16_t chunk[chunks][ROWS][CHUNK];
};

/* Counts a position in a ring of STAGES slots. The n-th use of a slot waits for parity n % 2 of its "full" barrier; filling waits
 * for the opposite parity of its "empty" barrier. */
template <int STAGES> struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

struct pipe {
    uint64_t full, empty;
};

/* Initialises a pipe: one arrival (and its bytes) fills it, one arrival of every consumer warp empties it. */
INLINE void pipe_init(pipe &b, int consumer_warpgroups)
{
    mbar_init(smem_addr(&b.full), 1);
    mbar_init(smem_addr(&b.empty), 4 * consumer_warpgroups);
}

INLINE void pipe_wait_full(pipe &b, uint32_t parity)
{
    mbar_wait(smem_addr(&b.full), parity);
}

INLINE void pipe_wait_empty(pipe &b, uint32_t parity)
{
    mbar_wait(smem_addr(&b.empty), parity ^ 1);
}

INLINE void pipe_release(pipe &b)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbar_arrive(smem_addr(&b.empty));
}

/* Loads the rows [row, row + ROWS) of one head, by one thread; zeros beyond the tensor's rows and columns. */
template <int ROWS, int D>
INLINE void tile_load(smem_tile<ROWS, D> &tile, const CUtensorMap *map, uint64_t *full, int head, int row)
{
#pragma unroll
    for (int c = 0; c < tile.chunks; c++)
        tma_load_3d(smem_addr(tile.chunk[c]), map, smem_addr(full), c * CHUNK, head, row);
}

/* Describes a tile as an operand that is summed over its columns (k16 step k), from row `first` on. */
template <int ROWS, int D> INLINE uint64_t operand_by_columns(const smem_tile<ROWS, D> &t, int first, int k)
{
    return wgmma_descriptor(smem_addr(&t.chunk[k / 4][first][k % 4 * 16]), 16, 1024, SWIZZLE_128);
}

/* Describes a tile as an operand that is summed over its rows, from chunk `chunk` on. */
template <int ROWS, int D> INLINE uint64_t operand_by_rows(const smem_tile<ROWS, D> &t, int chunk, int k)
{
    return wgmma_descriptor(smem_addr(&t.chunk[chunk][16 * k][0]), sizeof t.chunk[0], 1024, SWIZZLE_128);
}

/* Computes s [64 x N] = a (from row `first`) b^T, summed over D columns. Asynchronous: the caller fences, commits and waits. */
template <int ROWS, int N, int D>
INLINE void product_nt(float (&s)[N / 2], const smem_tile<ROWS, D> &a, int first, const smem_tile<N, D> &b)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        wgmma_ss<N, K_MAJOR, K_MAJOR>(s, operand_by_columns(a, first, k), operand_by_columns(b, 0, k),
                                      k ? WGMMA_ADD : WGMMA_REPLACE);
}

/* Computes acc [64 x D] += a [64 x N] b [N x D], a from registers. `a` must be written anew for every use: if a loop carries it
 * unchanged, ptxas 13.0 gives its registers away (wrong dQ on an H200; the SASS shows it). */
template <int N, int D> INLINE void product_rn(float (&acc)[D / 2], const uint32_t (&a)[N / 16][4], const smem_tile<N, D> &b)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++)
        wgmma_rs<D, MN_MAJOR>(acc, a[k], operand_by_rows(b, 0, k), WGMMA_ADD);
}

/* Packs a fragment [64 x N] as the A operand of the next product, rounded to bf16. */
template <int N> INLINE void fragment_pack(uint32_t (&a)[N / 16][4], const float (&s)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        a[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* Marks a fragment as usable, after a wait. */
template <int COUNT> INLINE void fragment_ready(float (&s)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        wgmma_keep(s[i]);
}

template <int COUNT> INLINE void fragment_scale(float (&s)[COUNT], const float (&by)[2])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        s[i] *= by[i / 2 % 2];
}

/* Returns the warpgroup's index, through a shuffle, so that the compiler knows it to be equal in all lanes: wgmma takes its
 * descriptors from uniform registers. */
INLINE int warpgroup_index()
{
    return __shfl_sync(LT_FULL_MASK, (int)threadIdx.x / WARPGROUP, 0);
}

/* Returns the first of this thread's two rows of a fragment. */
INLINE int fragment_row()
{
    return threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
}

/* The columns [begin, end) that this thread's two rows attend. */
struct fragment_mask {
    int begin[2], end[2];
};

/* Returns the mask of a fragment whose rows are queries, the first `row`. */
INLINE fragment_mask mask_of_queries(const attn_mask &m, int row)
{
    fragment_mask f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int q = row + fragment_row() + 8 * r;
        f.begin[r] = q < m.sq ? attn_from(m, q) : 0;
        f.end[r] = q < m.sq ? attn_to(m, q) : 0;
    }
    return f;
}

/* Sets s = -inf where not attended; column 0 is `at`. A full tile is left alone. */
template <int N> INLINE void fragment_apply_mask(float (&s)[N / 2], const fragment_mask &m, const attn_range &range, int at)
{
    if (attn_classify(range, at, N) == ATTN_FULL)
        return;
    const int column = at + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int r = i / 2 % 2, c = column + i / 4 * 8 + i % 2;
        if (c < m.begin[r] || c >= m.end[r])
            s[i] = -INFINITY;
    }
}

/* Replaces scores by t = tanh(scale * score / cap), as cuda_cap.cuh explains. */
template <int COUNT> INLINE void fragment_cap(float (&s)[COUNT], const attn_scores &scores)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        s[i] = attn_cap_tanh(s[i], scores);
}

/* Transposes words within a quad: lane t gives w[i] = its word of column block i and gets the four words of block t. */
INLINE void quad_transpose(uint32_t (&w)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t other = __shfl_xor_sync(LT_FULL_MASK, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? other : w[i];
        w[i + 1] = odd ? w[i + 1] : other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t other = __shfl_xor_sync(LT_FULL_MASK, high ? w[i] : w[i + 2], 2);
        w[i] = high ? other : w[i];
        w[i + 2] = high ? w[i + 2] : other;
    }
}

#endif
