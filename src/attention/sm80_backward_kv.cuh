// Flash attention backward for sm_80, dK and dV (and dQ by additions in the fast mode). A block takes M keys of one KV head, its
// warps 16 or 32 each, and walks over the query heads of the group and over tiles of N queries. Private to src/attention.
//
// Scores are computed transposed, with keys as rows. So P^T and dS^T leave the first products in just the registers in which they
// enter dV += P^T dO and dK += dS^T Q. Only dQ += dS K sums over the keys of all warps and passes dS through shared memory.
#ifndef LTRAIN_ATTENTION_SM80_BACKWARD_KV_CUH
#define LTRAIN_ATTENTION_SM80_BACKWARD_KV_CUH

#include "attention/sm80_backward.cuh"

// Results of a launch, and whether scores have a cap. Head dimension 256 has no registers for dK and dV together: it launches
// twice.
enum { SM80_DV = 1, SM80_DK = 2, SM80_DQ = 4, SM80_CAP = 8 };

template <int D, int M, int N, int STAGES, int WHAT> struct alignas(128) sm80_kv_shared {
    bf16_bits k[M * D];
    alignas(128) bf16_bits v[WHAT & SM80_DK ? M * D : 1];
    alignas(128) bf16_bits q[STAGES][N * D];
    bf16_bits g[STAGES][N * D];
    alignas(128) bf16_bits ds[WHAT & SM80_DQ ? M * N : 1]; // [keys][queries]
    alignas(16) attn_row_stat stat[STAGES][N];
    attn_row_span span[STAGES][N];
    attn_range range; // in shared memory, as registers are scarcer
};

// Starts copying the queries [q, q + N) of one head. Rows beyond sq are zero, and their p is 0 by their padded stat.
template <int D, int N, int THREADS, class SHARED>
static __device__ __forceinline__ void sm80_kv_load(const sm80_backward_args &a, SHARED &s, int stage, int head, int q)
{
    tile_load_head<N, D, THREADS>(smem_addr(s.q[stage]), a.q, a.mask.sq, a.hq, a.head_dim, head, q);
    tile_load_head<N, D, THREADS>(smem_addr(s.g[stage]), a.g, a.mask.sq, a.hq, a.value_dim, head, q);
    const int i = threadIdx.x * 2; // two rows per 16 bytes
    static_assert(N <= THREADS, "half of the threads copy stat, the other half span");
    if (i < N)
        cp_async_16(smem_addr(&s.stat[stage][i]), a.rows.stat + head * a.rows.padded + q + i);
    else if (i < 2 * N)
        cp_async_16(smem_addr(&s.span[stage][i - N]), a.rows.span + q + i - N);
    cp_async_commit();
}

// Turns scores [keys][queries] into p. stat: points to the entry of this lane's first query.
template <int MT, int NT>
static __device__ __forceinline__ void sm80_kv_probabilities(float (&c)[MT][NT][4], const attn_row_stat *stat, float scale_log2)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 x = *(const float4 *)(stat + n * 8); // lse2, delta of two queries
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = ex2(fmaf(c[m][n][i], scale_log2, i % 2 ? -x.z : -x.x));
    }
}

// Sets c = `other` where a query does not attend a key. span: entry of this lane's first query; key: number of c[0][0][0]'s key.
template <int MT, int NT>
static __device__ __forceinline__ void sm80_kv_mask(float (&c)[MT][NT][4], const attn_row_span *span, int key, float other)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int4 x = *(const int4 *)(span + n * 8); // from, to of two queries
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = key + m * 16 + i / 2 * 8;
                if (at < (i % 2 ? x.z : x.x) || at >= (i % 2 ? x.w : x.y))
                    c[m][n][i] = other;
            }
    }
}

// Turns capped scores t into p: p goes to f, as the next product's operand, and c becomes p (1 - t^2).
template <int MT, int NT>
static __device__ __forceinline__ void sm80_kv_capped_probabilities(float (&c)[MT][NT][4], uint32_t (&f)[MT][NT / 2][4],
                                                                    const attn_row_stat *stat, float scale_log2)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 x = *(const float4 *)(stat + n * 8);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float &left = c[m][n][h * 2], &right = c[m][n][h * 2 + 1];
                const float p = ex2(fmaf(left, scale_log2, -x.x)), r = ex2(fmaf(right, scale_log2, -x.z));
                f[m][n / 2][n % 2 * 2 + h] = pack_bf16(p, r);
                left = p * attn_cap_slope(left);
                right = r * attn_cap_slope(right);
            }
    }
}

// Starts dp at -delta, so that ds = p dp; the scale is applied to the sums.
template <int MT, int NT>
static __device__ __forceinline__ void sm80_kv_start_dp(float (&dp)[MT][NT][4], const attn_row_stat *stat)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 x = *(const float4 *)(stat + n * 8);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = i % 2 ? -x.w : -x.y;
    }
}

// Adds scale dS K to dQ of the queries [q, q + N). The warps divide [N][D] among themselves; each sums over all M keys.
template <int D, int M, int N, int WARPS>
static __device__ __forceinline__ void sm80_kv_add_dq(const sm80_backward_args &a, uint32_t ds, uint32_t k, int head, int q)
{
    constexpr int Q_WARPS = N / 32 < WARPS ? N / 32 : WARPS, WIDE = WARPS / Q_WARPS;
    constexpr int D_WARPS = D / 16 % WIDE ? WIDE / 2 : WIDE, MT = N / 16 * D_WARPS / WARPS, NT = D / 8 / D_WARPS;
    static_assert(MT * 16 * (WARPS / D_WARPS) == N && NT * 8 * D_WARPS == D && NT % 2 == 0, "the warps cover the tile");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = warp / D_WARPS * MT, n0 = warp % D_WARPS * NT;
    const uint32_t ds_at = ds + tile_chunks_first<N>(lane), k_at = k + tile_rows_first<D>(lane);
    float c[MT][NT][4];
    tile_zero(c);
#pragma unroll
    for (int i = 0; i < M / 16; i++) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            ldmatrix_x4_trans(fa[m], tile_step<N>(ds_at, m0 + m) + i * 16 * N * 2);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t fb[4];
            ldmatrix_x4_trans(fb, tile_step<D>(k_at, (n0 + n) / 2) + i * 16 * D * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_m16n8k16(c[m][n], fa[m], fb[0], fb[1]);
                mma_m16n8k16(c[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = q + (m0 + m) * 16 + lane / 4 + i / 2 * 8, col = n0 * 8 + lane % 4 * 2 + i % 2;
            float *out = a.dq + ((int64_t)row * a.hq + head) * a.head_dim + col;
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (row < a.mask.sq && col + n * 8 < a.head_dim)
                    red_add(out + n * 8, a.scale * c[m][n][i]);
        }
}

// Stores dk or dv of this warp's keys, `width` wide, its columns from `column` on.
template <int MT, int NT>
static __device__ __forceinline__ void sm80_kv_store(const sm80_backward_args &a, float *out, const float (&c)[MT][NT][4],
                                                     int width, float factor, int key, int kv, int column)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = key + m * 16 + h * 8 + lane / 4;
            float *at = out + ((int64_t)row * a.hk + kv) * width + column + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (row < a.mask.sk && column + n * 8 < width)
                    sm80_put(at + n * 8, factor * c[m][n][h * 2], factor * c[m][n][h * 2 + 1], a.accumulate);
        }
}

// Finds the segment's queries that attend the keys [k, k + n), with one warp per bound.
static __device__ __forceinline__ void sm80_queries_of(const sm80_backward_args &a, int k, int n, attn_range &range)
{
    const attn_mask &m = a.mask;
    const int warp = threadIdx.x / 32, last = k + n - 1;
    if (warp < 4) {
        int x = warp == 0   ? max(attn_search<true>(m, k), a.first)
                : warp == 1 ? min(attn_search<false>(m, last < m.sk ? last : m.sk - 1), a.end)
                : warp == 2 ? attn_search<true>(m, last) // sq if the tile reaches beyond sk: such a tile is partial
                            : attn_search<false>(m, k);
        if (threadIdx.x % 32 == 0)
            (warp == 0 ? range.begin : warp == 1 ? range.end : warp == 2 ? range.full_begin : range.full_end) = x;
    }
    __syncthreads();
}

// Processes one tile of queries, PART at a time: p, dp, ds, and the products with them.
template <int D, int M, int N, int WARPS, int PART, int WHAT, class SHARED, int MT, int OT>
static __device__ __forceinline__ void sm80_kv_tile(const sm80_backward_args &a, SHARED &s, int stage, bool partial, int k0,
                                                    int column, float (&dk)[MT][OT][4], float (&dv)[MT][OT][4])
{
    const int thread = recomputed(threadIdx.x), lane = thread % 32, row = thread / 32 * MT * 16, t = lane % 4;
    const uint32_t first = tile_rows_first<D>(lane), k_at = smem_addr(s.k) + row * D * 2 + first;
#pragma unroll 1
    for (int part = 0; part < N; part += PART) {
        const uint32_t q = smem_addr(s.q[stage]) + part * D * 2, g = smem_addr(s.g[stage]) + part * D * 2;
        const attn_row_stat *stat = s.stat[stage] + part + t * 2;
        float p[MT][PART / 8][4];
        uint32_t f[MT][PART / 16][4];
        tile_zero(p);
        product_of_tiles<D>(p, k_at, q + tile_chunks_first<D>(lane));
        const attn_row_span *span = s.span[stage] + part + t * 2;
        if (WHAT & SM80_CAP) {
            tile_cap(p, a.scores);
            if (partial)
                sm80_kv_mask(p, span, k0 + row + lane / 4, -INFINITY);
            sm80_kv_capped_probabilities(p, f, stat, a.scores.log2);
        } else {
            sm80_kv_probabilities(p, stat, a.scores.log2);
            if (partial)
                sm80_kv_mask(p, span, k0 + row + lane / 4, 0);
            fragments_of(f, p);
        }
        if (WHAT & SM80_DV)
            product_of_fragments<D>(dv, f, g + first + column * 2);
        if (WHAT & SM80_DK) {
            float dp[MT][PART / 8][4];
            sm80_kv_start_dp(dp, stat);
            product_of_tiles<D>(dp, smem_addr(s.v) + row * D * 2 + first, g + tile_chunks_first<D>(lane));
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        p[m][n][i] *= dp[m][n][i];
            fragments_of(f, p);
            product_of_fragments<D>(dk, f, q + first + column * 2);
        }
        if constexpr ((WHAT & SM80_DQ) != 0) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        *(uint32_t *)((char *)s.ds + tile_at<N>(row + m * 16 + h * 8 + lane / 4, part / 8 + n) + t * 4) =
                            f[m][n / 2][n % 2 * 2 + h];
        }
    }
}

// Computes a block's results. Blocks run KV head outermost, first keys (the longest in causal masks) first. With two stages, the
// next queries are copied while these are multiplied. A block computes OUT columns of its results (sm80_forward_kernel).
template <int D, int M, int N, int WARPS, int STAGES, int PART, int WHAT, int OUT>
LT_KERNEL(WARPS * 32)
sm80_backward_kv_kernel(const sm80_backward_args a)
{
    static_assert(OUT == D || !(WHAT & SM80_DQ), "dQ is computed whole");
    static_assert(WARPS >= 4 && (!(WHAT & SM80_DQ) || WHAT & SM80_DK), "four warps find the queries; dQ needs dS");
    constexpr int THREADS = WARPS * 32, MT = M / (16 * WARPS);
    typedef sm80_kv_shared<D, M, N, STAGES, WHAT> shared;
    LT_SHARED(shared, s);
    const int block = blockIdx.x / (D / OUT), column = blockIdx.x % (D / OUT) * OUT;
    const int group = a.hq / a.hk, kv = block / a.tiles, k0 = block % a.tiles * M;
    tile_load_head<M, D, THREADS>(smem_addr(s.k), a.k, a.mask.sk, a.hk, a.head_dim, kv, k0);
    if (WHAT & SM80_DK)
        tile_load_head<M, D, THREADS>(smem_addr(s.v), a.v, a.mask.sk, a.hk, a.value_dim, kv, k0);
    cp_async_commit();
    sm80_queries_of(a, k0, M, s.range);
    float dk[MT][OUT / 8][4], dv[MT][OUT / 8][4];
    tile_zero(dk);
    tile_zero(dv);

    int head = kv * group, q = s.range.begin / N * N, stage = 0;
    if (q < s.range.end)
        sm80_kv_load<D, N, THREADS>(a, s, 0, head, q);
    else
        head = (kv + 1) * group; // only zeros are left to store
    while (head < (kv + 1) * group) {
        const bool last = q + N >= s.range.end; // last tile of this head
        const int next_head = head + last, next = last ? s.range.begin / N * N : q + N;
        cp_async_wait<0>();
        __syncthreads(); // this stage has landed; the other one and ds are free
        if (STAGES == 2 && next_head < (kv + 1) * group)
            sm80_kv_load<D, N, THREADS>(a, s, stage ^ 1, next_head, next);
        const bool partial = attn_classify(s.range, q, N) != ATTN_FULL;
        sm80_kv_tile<D, M, N, WARPS, PART, WHAT>(a, s, stage, partial, k0, column, dk, dv);
        if (STAGES == 1 || WHAT & SM80_DQ)
            __syncthreads(); // the stage is free; ds is written
        if (STAGES == 1 && next_head < (kv + 1) * group)
            sm80_kv_load<D, N, THREADS>(a, s, 0, next_head, next);
        if constexpr ((WHAT & SM80_DQ) != 0)
            sm80_kv_add_dq<D, M, N, WARPS>(a, smem_addr(s.ds), smem_addr(s.k), head, q);
        head = next_head, q = next, stage ^= STAGES - 1;
    }
    cp_async_wait<0>();
    if (a.accumulate && s.range.begin >= s.range.end)
        return;
    const int key = k0 + threadIdx.x / 32 * MT * 16;
    if (WHAT & SM80_DK)
        sm80_kv_store(a, a.dk, dk, a.head_dim, a.scale, key, kv, column);
    if (WHAT & SM80_DV)
        sm80_kv_store(a, a.dv, dv, a.value_dim, 1, key, kv, column);
}

#endif
