// Flash attention backward for sm_80, dQ of the deterministic mode. A block takes M queries of one head, its warps 16 or 32 each,
// and walks over tiles of N keys. Private to src/attention.
#ifndef LTRAIN_ATTENTION_SM80_BACKWARD_Q_CUH
#define LTRAIN_ATTENTION_SM80_BACKWARD_Q_CUH

#include "attention/sm80_backward.cuh"

template <int D, int M, int N, int STAGES> struct alignas(128) sm80_q_shared {
    bf16_bits q[M * D], g[M * D];
    bf16_bits k[STAGES][N * D], v[STAGES][N * D];
};

template <int D, int N, int THREADS, class SHARED>
static __device__ __forceinline__ void sm80_q_load(const sm80_backward_args &a, SHARED &s, int stage, int kv, int k)
{
    tile_load_head<N, D, THREADS>(smem_addr(s.k[stage]), a.k, a.mask.sk, a.hk, a.head_dim, kv, k);
    const int width = recomputed(a.value_dim); // its strides would take registers around the loop
    tile_load_head<N, D, THREADS>(smem_addr(s.v[stage]), a.v, a.mask.sk, a.hk, width, kv, k);
    cp_async_commit();
}

// Computes ds = p dp in place of the scores, times the slope of a cap; dp started at -delta. stat: of this lane's rows; span: of
// the first of them; key: of c[0][0][0].
template <bool CAP, int MT, int NT>
static __device__ __forceinline__ void sm80_q_score_gradients(float (&c)[MT][NT][4], const float (&dp)[MT][NT][4],
                                                              const attn_row_stat (&stat)[MT][2], const attn_row_span *span,
                                                              const attn_scores &scores, bool partial, int key)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int from = 0, to = NT * 8;
            if (partial) {
                attn_row_span x = span[m * 16 + h * 8];
                from = x.from - key, to = x.to - key;
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &s = c[m][n][h * 2 + i];
                    const float x = CAP ? attn_cap_tanh(s, scores) : s;
                    s = ex2(fmaf(x, scores.log2, -stat[m][h].lse2)) * dp[m][n][h * 2 + i];
                    if (CAP)
                        s *= attn_cap_slope(x);
                    if (partial && (n * 8 + i < from || n * 8 + i >= to))
                        s = 0;
                }
        }
}

// Computes dQ of a block's queries, OUT columns of it (sm80_forward_kernel).
template <int D, int M, int N, int WARPS, int STAGES, bool CAP, int OUT>
LT_KERNEL(WARPS * 32)
sm80_backward_q_kernel(const sm80_backward_args a)
{
    constexpr int THREADS = WARPS * 32, MT = M / (16 * WARPS), NT = N / 8;
    typedef sm80_q_shared<D, M, N, STAGES> shared;
    LT_SHARED(shared, s);
    const int group = a.hq / a.hk, lane = threadIdx.x % 32, row = threadIdx.x / 32 * MT * 16;
    const int block = blockIdx.x / (D / OUT), column = blockIdx.x % (D / OUT) * OUT;
    const int kv = block / (a.tiles * group), rest = block % (a.tiles * group);
    const int head = kv * group + rest % group, q0 = (a.tiles - 1 - rest / group) * M;
    attn_range range = attn_keys_of(a.mask, q0, M);
    range.begin = max(range.begin, a.first), range.end = min(range.end, a.end);
    if (a.accumulate && range.begin >= range.end)
        return;
    int k = range.begin / N * N, stage = 0;
    if (k < range.end) {
        tile_load_head<M, D, THREADS>(smem_addr(s.q), a.q, a.mask.sq, a.hq, a.head_dim, head, q0);
        tile_load_head<M, D, THREADS>(smem_addr(s.g), a.g, a.mask.sq, a.hq, a.value_dim, head, q0);
        sm80_q_load<D, N, THREADS>(a, s, 0, kv, k);
    }
    const attn_row_span *span = a.rows.span + q0 + row + lane / 4;
    attn_row_stat stat[MT][2];
#pragma unroll
    for (int m = 0; m < MT * 2; m++)
        stat[m / 2][m % 2] = a.rows.stat[head * a.rows.padded + q0 + row + lane / 4 + m * 8];
    const uint32_t first = tile_rows_first<D>(lane), second = tile_chunks_first<D>(lane), own = row * D * 2 + first;
    float dq[MT][OUT / 8][4];
    tile_zero(dq);
    for (; k < range.end; k += N) {
        cp_async_wait<0>();
        __syncthreads(); // this stage has landed; the other one is free
        if (STAGES == 2 && k + N < range.end)
            sm80_q_load<D, N, THREADS>(a, s, stage ^ 1, kv, k + N);
        float c[MT][NT][4], dp[MT][NT][4];
        tile_zero(c);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    dp[m][n][i] = -stat[m][i / 2].delta;
        product_of_tiles<D>(c, smem_addr(s.q) + own, smem_addr(s.k[stage]) + second);
        product_of_tiles<D>(dp, smem_addr(s.g) + own, smem_addr(s.v[stage]) + second);
        if (attn_classify(range, k, N) == ATTN_FULL)
            sm80_q_score_gradients<CAP>(c, dp, stat, span, a.scores, false, k);
        else
            sm80_q_score_gradients<CAP>(c, dp, stat, span, a.scores, true, k + lane % 4 * 2);
        uint32_t f[MT][NT / 2][4];
        fragments_of(f, c);
        product_of_fragments<D>(dq, f, smem_addr(s.k[stage]) + first + column * 2);
        if (STAGES == 1) {
            __syncthreads(); // the stage is free
            if (k + N < range.end)
                sm80_q_load<D, N, THREADS>(a, s, 0, kv, k + N);
        }
        stage ^= STAGES - 1;
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int query = q0 + row + m * 16 + h * 8 + lane / 4;
            float *out = a.dq + ((int64_t)query * a.hq + head) * a.head_dim + column + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < OUT / 8; n++)
                if (query < a.mask.sq && column + n * 8 < a.head_dim)
                    sm80_put(out + n * 8, a.scale * dq[m][n][h * 2], a.scale * dq[m][n][h * 2 + 1], a.accumulate);
        }
}

#endif
