// Flash attention forward for sm_80. A block takes M queries of one head, its warps 16 or 32 each, and walks over tiles of N
// keys. Private to src/attention.
#ifndef LTRAIN_ATTENTION_SM80_FORWARD_CUH
#define LTRAIN_ATTENTION_SM80_FORWARD_CUH

#include "attention/sm80_tile.cuh"

struct sm80_forward_args {
    bf16_bits *o;
    float *lse, *o_fp32; // o_fp32: used instead of o; NULL: o
    const bf16_bits *q, *k, *v;
    attn_mask mask;
    int hq, hk, head_dim, value_dim, tiles; // tiles: of queries; D is at least either width
    attn_scores scores;
};

template <int D, int M, int N> struct alignas(128) sm80_forward_shared {
    bf16_bits q[M * D]; // q, at the end o
    bf16_bits k[N * D], v[N * D];
    int from[M], to[M], kv;
    attn_range range; // in shared memory, like kv, as registers are scarcer
};

// Sets scores of keys that a row does not attend to -inf. row, key: of c[0][0][0] in the tile and in the call.
template <int MT, int NT, class SHARED>
static __device__ __forceinline__ void sm80_mask_scores(float (&c)[MT][NT][4], const SHARED &s, int row, int key)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int from = s.from[row + m * 16 + h * 8] - key, to = s.to[row + m * 16 + h * 8] - key;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (n * 8 + i < from || n * 8 + i >= to)
                        c[m][n][h * 2 + i] = -INFINITY;
        }
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(LT_FULL_MASK, x, 1));
    return fmaxf(x, __shfl_xor_sync(LT_FULL_MASK, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(LT_FULL_MASK, x, 1);
    return x + __shfl_xor_sync(LT_FULL_MASK, x, 2);
}

// Turns scores into p = 2^(score * scale_log2 - top), and scales o and sum to the new top. top is in units of log2; -inf: no key
// so far. sum is this lane's part.
template <int MT, int NT, int OT>
static __device__ __forceinline__ void sm80_softmax(float (&c)[MT][NT][4], float (&o)[MT][OT][4], float (&top)[MT][2],
                                                    float (&sum)[MT][2], float scale_log2)
{
    float shrink[MT][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float score = c[m][0][h * 2];
#pragma unroll
            for (int n = 0; n < NT; n++)
                score = fmaxf(score, fmaxf(c[m][n][h * 2], c[m][n][h * 2 + 1]));
            float next = fmaxf(top[m][h], quad_max(score) * scale_log2);
            moved |= next != top[m][h];
            shrink[m][h] = next == -INFINITY ? 1.0f : ex2(top[m][h] - next); // -inf - -inf would be NaN
            top[m][h] = next;
        }
    if (__any_sync(LT_FULL_MASK, moved)) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                sum[m][h] *= shrink[m][h];
#pragma unroll
                for (int n = 0; n < OT; n++) {
                    o[m][n][h * 2] *= shrink[m][h];
                    o[m][n][h * 2 + 1] *= shrink[m][h];
                }
            }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // part: of one tile, since a sum of millions of p would lose bits
            float base = top[m][h] == -INFINITY ? 0.0f : top[m][h], part = 0;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float p = ex2(fmaf(c[m][n][h * 2 + i], scale_log2, -base));
                    c[m][n][h * 2 + i] = p;
                    part += p;
                }
            sum[m][h] += part;
        }
}

// Stores o / sum, in bf16 through this warp's own rows of the tile at `tile`, and lse = log(sum of exp(score)). row, q: the
// warp's first; column: o's.
template <int D, int MT, int OT>
static __device__ __forceinline__ void sm80_forward_store(const sm80_forward_args &a, float (&o)[MT][OT][4], float (&top)[MT][2],
                                                          float (&sum)[MT][2], char *tile, int row, int q, int head, int column)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float total = quad_sum(sum[m][h]);
            float inverse = total > 0 ? 1 / total : total; // 0 for no keys; NaN stays NaN
            int at = row + m * 16 + h * 8 + g, query = q + m * 16 + h * 8 + g;
            if (t == 0 && column == 0 && query < a.mask.sq)
                a.lse[(int64_t)head * a.mask.sq + query] = total == 0 ? -INFINITY : top[m][h] * 0.69314718f + logf(total);
            if (a.o_fp32) { // a quad's 8 columns are 32 bytes
#pragma unroll
                for (int n = 0; n < OT; n++)
                    if (query < a.mask.sq && column + n * 8 < a.value_dim)
                        *(float2 *)(a.o_fp32 + ((int64_t)query * a.hq + head) * a.value_dim + column + n * 8 + t * 2) =
                            make_float2(o[m][n][h * 2] * inverse, o[m][n][h * 2 + 1] * inverse);
                continue;
            }
#pragma unroll
            for (int n = 0; n < OT; n++)
                *(uint32_t *)(tile + tile_at<D>(at, n) + t * 4) =
                    pack_bf16(o[m][n][h * 2] * inverse, o[m][n][h * 2 + 1] * inverse);
        }
    if (a.o_fp32)
        return;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < MT * 16 * OT / 32; j++) {
        int i = j * 32 + lane, r = i / OT, chunk = i % OT, at = column + chunk * 8;
        if (q + r < a.mask.sq && at < a.value_dim)
            *(uint4 *)(a.o + ((int64_t)(q + r) * a.hq + head) * a.value_dim + at) =
                *(const uint4 *)(tile + tile_at<D>(row + r, chunk));
    }
}

// Computes attention of a block's queries. Blocks run in the order KV head, longest query tile first, query head: concurrent
// blocks share one window of K and V in L2. K or V of a tile is copied while the other is multiplied. If the registers do not
// hold D columns of o, a block computes OUT of them, and the blocks of other columns compute the same scores again.
template <int D, int M, int N, int WARPS, bool CAP, int OUT> LT_KERNEL(WARPS * 32) sm80_forward_kernel(const sm80_forward_args a)
{
    constexpr int SLICES = D / OUT;
    constexpr int THREADS = WARPS * 32, MT = M / (16 * WARPS), NT = N / 8;
    typedef sm80_forward_shared<D, M, N> shared;
    LT_SHARED(shared, s);
    const int group = a.hq / a.hk, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block = blockIdx.x / SLICES, column = blockIdx.x % SLICES * OUT;
    const int kv = block / (a.tiles * group), rest = block % (a.tiles * group);
    const int head = kv * group + rest % group, q0 = (a.tiles - 1 - rest / group) * M, row = warp * MT * 16;
    const attn_range range = attn_keys_of(a.mask, q0, M);
    const uint32_t sq = smem_addr(s.q), sk = smem_addr(s.k), sv = smem_addr(s.v);

    int k = range.begin / N * N;
    if (k < range.end) {
        tile_load_head<M, D, THREADS>(sq, a.q, a.mask.sq, a.hq, a.head_dim, head, q0);
        tile_load_head<N, D, THREADS>(sk, a.k, a.mask.sk, a.hk, a.head_dim, kv, k);
        cp_async_commit();
    }
    if (threadIdx.x == 0) {
        s.range = range;
        s.kv = kv;
    }
    for (int i = threadIdx.x; i < M; i += THREADS) {
        s.from[i] = q0 + i < a.mask.sq ? attn_from(a.mask, q0 + i) : 0;
        s.to[i] = q0 + i < a.mask.sq ? attn_to(a.mask, q0 + i) : 0;
    }
    __syncthreads();
    const uint32_t q_at = sq + row * D * 2 + tile_rows_first<D>(lane), k_at = sk + tile_chunks_first<D>(lane);
    const uint32_t v_at = sv + tile_rows_first<D>(lane) + column * 2;
    float o[MT][OUT / 8][4], top[MT][2], sum[MT][2];
    tile_zero(o);
#pragma unroll
    for (int m = 0; m < MT * 2; m++) {
        top[m / 2][m % 2] = -INFINITY;
        sum[m / 2][m % 2] = 0;
    }
    for (; k < s.range.end; k += N) {
        cp_async_wait<0>();
        __syncthreads(); // K has landed; V is free
        tile_load_head<N, D, THREADS>(sv, a.v, a.mask.sk, a.hk, a.value_dim, s.kv, k);
        cp_async_commit();
        float c[MT][NT][4];
        tile_zero(c);
        product_of_tiles<D>(c, q_at, k_at);
        if (CAP)
            tile_cap(c, a.scores);
        if (attn_classify(s.range, k, N) != ATTN_FULL)
            sm80_mask_scores(c, s, row + lane / 4, k + lane % 4 * 2);
        cp_async_wait<0>();
        __syncthreads(); // V has landed; K is free
        if (k + N < s.range.end) {
            tile_load_head<N, D, THREADS>(sk, a.k, a.mask.sk, a.hk, a.head_dim, s.kv, k + N);
            cp_async_commit();
        }
        sm80_softmax(c, o, top, sum, a.scores.log2);
        uint32_t p[MT][NT / 2][4];
        fragments_of(p, c);
        product_of_fragments<D>(o, p, v_at);
    }
    sm80_forward_store<D>(a, o, top, sum, (char *)s.q, row, q0 + row, head, column);
}

#endif
