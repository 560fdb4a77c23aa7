/* dQ for Hopper, deterministic: a block keeps 64 queries per consumer warpgroup and walks the keys they attend, as the forward
 * does; S = Q K^T and dP = dO V^T again, then dQ += dS K. */
#ifndef LTRAIN_ATTENTION_SM90_BACKWARD_QUERIES_CUH
#define LTRAIN_ATTENTION_SM90_BACKWARD_QUERIES_CUH

#include "attention/sm90_backward.cuh"

template <int D_, int N_, int CONSUMERS_, int STAGES_, bool CAP_ = false> struct queries_shape {
    static constexpr int D = D_, N = N_, CONSUMERS = CONSUMERS_, STAGES = STAGES_, M = 64 * CONSUMERS_;
    static constexpr bool CAP = CAP_;
    static constexpr int threads = WARPGROUP * (CONSUMERS + 1);

    struct shared {
        smem_tile<M, D> q, go;
        smem_tile<N, D> k[STAGES], v[STAGES];
        pipe q_bar, k_bar[STAGES]; /* q_bar: of q and go; k_bar.empty: of k and v */
        uint64_t v_full[STAGES];
        backward_tile tile;
    };
};

/* The forward's order (sm90_forward.cu). */
template <class T> INLINE backward_tile queries_tile_at(const backward_params &p, int number)
{
    const int group = p.hq / p.hk, rows = (p.mask.sq + T::M - 1) / T::M;
    const int kv = number / (rows * group), rest = number % (rows * group);
    backward_tile t;
    t.row = (rows - 1 - rest / group) * T::M;
    t.head = kv * group + rest % group;
    t.range = attn_keys_of(p.mask, t.row, T::M);
    t.range.begin = max(t.range.begin / T::N * T::N, p.first);
    t.range.end = min(t.range.end, p.end);
    return t;
}

template <class T>
INLINE void queries_produce(typename T::shared &s, const backward_params &p, const CUtensorMap *q_map, const CUtensorMap *k_map,
                            const CUtensorMap *v_map, const CUtensorMap *go_map)
{
    ring<1> q;
    ring<T::STAGES> kv;
    for (int number = blockIdx.x;; number = gridDim.x + atomicAdd(p.counter, 1)) {
        backward_tile t = {-1, 0, {0, 0, 0, 0}};
        if (number < p.tiles)
            t = queries_tile_at<T>(p, number);
        pipe_wait_empty(s.q_bar, q.parity);
        s.tile = t;
        if (t.row < 0 || t.range.begin >= t.range.end) {
            mbar_arrive(smem_addr(&s.q_bar.full));
            if (t.row < 0)
                return;
        } else {
            mbar_arrive_expect_tx(smem_addr(&s.q_bar.full), s.q.bytes + s.go.bytes);
            tile_load(s.q, q_map, &s.q_bar.full, t.head, t.row);
            tile_load(s.go, go_map, &s.q_bar.full, t.head, t.row);
        }
        q.next();
        const int kv_head = t.head / (p.hq / p.hk);
        for (int at = t.range.begin; at < t.range.end; at += T::N) {
            uint64_t *k_full = &s.k_bar[kv.slot].full, *v_full = &s.v_full[kv.slot];
            pipe_wait_empty(s.k_bar[kv.slot], kv.parity);
            mbar_arrive_expect_tx(smem_addr(k_full), s.k[0].bytes);
            tile_load(s.k[kv.slot], k_map, k_full, kv_head, at);
            mbar_arrive_expect_tx(smem_addr(v_full), s.v[0].bytes);
            tile_load(s.v[kv.slot], v_map, v_full, kv_head, at);
            kv.next();
        }
    }
}

/* All keys of one query tile. */
template <class T>
INLINE void queries_attend(typename T::shared &s, const backward_params &p, const backward_tile &t, int w, ring<T::STAGES> &kv,
                           float (&dq)[T::D / 2])
{
    constexpr int N = T::N;
    const int first = t.row + 64 * w;
    const fragment_mask rows = mask_of_queries(p.mask, first);
    attn_row_stat stat[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = first + fragment_row() + 8 * r;
        stat[r] = row < p.mask.sq ? p.stat[t.head * p.rows_padded + row] : attn_row_stat{INFINITY, 0};
    }
    float acc[N / 2], dp[N / 2];
    uint32_t a[N / 16][4];
    int last = 0;
    for (int at = t.range.begin; at < t.range.end; at += N) {
        pipe_wait_full(s.k_bar[kv.slot], kv.parity);
        wgmma_fence();
        product_nt(acc, s.q, 64 * w, s.k[kv.slot]);
        wgmma_commit();
        mbar_wait(smem_addr(&s.v_full[kv.slot]), kv.parity);
        wgmma_fence();
        product_nt(dp, s.go, 64 * w, s.v[kv.slot]);
        wgmma_commit();
        wgmma_wait<2>(); /* the previous step's dq */
        if (at > t.range.begin)
            pipe_release(s.k_bar[last]);
        wgmma_wait<1>();
        fragment_ready(acc);
        if (T::CAP)
            fragment_cap(acc, p.scores);
        fragment_apply_mask<N>(acc, rows, t.range, at);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float x = acc[i];
            acc[i] = probability(x, p.scores.log2, stat[i / 2 % 2].lse2);
            if (T::CAP)
                acc[i] *= attn_cap_slope(x);
        }
        wgmma_wait<0>();
        fragment_ready(dp);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            dp[i] = acc[i] * (dp[i] - stat[i / 2 % 2].delta);
        fragment_pack<N>(a, dp);
        wgmma_fence();
        product_rn<N>(dq, a, s.k[kv.slot]);
        wgmma_commit();
        last = kv.slot;
        kv.next();
    }
    pipe_release(s.q_bar);
    wgmma_wait<0>();
    fragment_ready(dq);
    pipe_release(s.k_bar[last]);
}

template <class T> INLINE void queries_consume(typename T::shared &s, const backward_params &p, int w)
{
    ring<1> q;
    ring<T::STAGES> kv;
    for (;;) {
        pipe_wait_full(s.q_bar, q.parity);
        const backward_tile t = s.tile;
        q.next();
        if (t.row < 0)
            return;
        float dq[T::D / 2] = {};
        if (t.range.begin < t.range.end)
            queries_attend<T>(s, p, t, w, kv, dq);
        else
            pipe_release(s.q_bar);
        if (t.range.begin >= t.range.end && p.accumulate)
            continue;
        store_gradient<T::D>(p.dq, dq, p.scale, t.row + 64 * w, p.mask.sq, t.head, p.hq, p.head_dim, p.accumulate);
    }
}

template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    queries_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap go_map, const backward_params p)
{
#if LT_SM90A
    LT_SHARED(typename T::shared, s);
    if (threadIdx.x == 0) {
        pipe_init(s.q_bar, T::CONSUMERS);
        for (int i = 0; i < T::STAGES; i++) {
            pipe_init(s.k_bar[i], T::CONSUMERS);
            mbar_init(smem_addr(&s.v_full[i]), 1);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int w = warpgroup_index() - 1;
    if (w < 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            queries_produce<T>(s, p, &q_map, &k_map, &v_map, &go_map);
    } else {
        setmaxnreg_inc<240>();
        queries_consume<T>(s, p, w);
    }
#endif
}

#endif
