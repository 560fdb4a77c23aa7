/* dK, dV and dQ for Hopper: a block keeps 64 keys per consumer warpgroup and walks the queries that attend them.
 *
 * Scores are computed transposed, S^T = K Q^T and dP^T = V dO^T. So P^T and dS^T are in registers as the next products want their
 * A: dV += P^T dO, dK += dS^T Q. The query heads of a KV head follow one another inside the block, so that dK and dV have one
 * writer. */
#ifndef LTRAIN_ATTENTION_SM90_BACKWARD_KEYS_CUH
#define LTRAIN_ATTENTION_SM90_BACKWARD_KEYS_CUH

#include "attention/sm90_backward_dq.cuh"

/* Describes a shape and its shared memory. dS^T also goes there: with all keys of the block, it is the A of dQ += dS K, of which
 * every warpgroup computes its share of the columns. Warps of their own hand them to TMA, which adds them to the output in an
 * order that repeats its bits (order_dq). */
template <int D_, int STAGES_, bool CAP_ = false> struct keys_shape {
    static constexpr int D = D_, NQ = 64, CONSUMERS = 2, STAGES = STAGES_, M = 64 * CONSUMERS;
    static constexpr bool CAP = CAP_;
    static constexpr int WRITERS = 2; /* warps that add dQ: one for each buffer */
    static constexpr int threads = WARPGROUP * (CONSUMERS + 1);
    static constexpr int COLUMNS = smem_tile<M, D>::chunks * CHUNK / CONSUMERS; /* columns of dQ of each warpgroup */
    static_assert(COLUMNS == 32 || COLUMNS == 64, "dQ is shared out in TMA boxes");

    struct shared {
        smem_tile<M, D> k, v;
        smem_tile<NQ, D> q[STAGES], go[STAGES];
        smem_tile<M, NQ> ds[2]; /* keys x queries: a step's, and those of the step before, whose dQ is computed */
        alignas(1024) float dq[WRITERS][CONSUMERS][COLUMNS / 32][NQ][32]; /* a warpgroup's columns as TMA boxes */
        attn_row_stat stat[STAGES][NQ];
        pipe kv_bar, q_bar[STAGES], dq_bar[WRITERS]; /* q_bar's empty barriers free a slot of both q and go */
        uint64_t go_full[STAGES], ds_full[2];
        backward_tile tile;
    };
};

/* Returns the tile of a number: keys from the first tile on (the longest under a causal mask), alternating among `heads_at_once`
 * KV heads. Blocks that wait for each other (order_dq) have the same head; the fewer of these run at a time, the less they wait. */
template <class T> INLINE backward_tile keys_tile_at(const backward_params &p, int number)
{
    const int rows = (p.mask.sk + T::M - 1) / T::M, first = number / (rows * p.heads_at_once) * p.heads_at_once,
              heads = min(p.heads_at_once, p.hk - first), rest = number - first * rows;
    backward_tile t;
    t.head = first + rest % heads;
    t.row = rest / heads * T::M;
    const int last = min(t.row + T::M, p.mask.sk) - 1;
    t.range = attn_range{max(p.keys[t.row].from / T::NQ * T::NQ, p.first), min(p.keys[last].to, p.end), p.keys[last].from,
                         p.keys[t.row].to};
    if (t.row + T::M > p.mask.sk)
        /* an empty range of full tiles: keys beyond sk are attended by no query, but dQ sums over them */
        t.range.full_end = t.range.full_begin;
    return t;
}

template <class T>
INLINE void keys_produce(typename T::shared &s, const backward_params &p, const CUtensorMap *q_map, const CUtensorMap *k_map,
                         const CUtensorMap *v_map, const CUtensorMap *go_map)
{
    ring<1> kv;
    ring<T::STAGES> q;
    for (;;) {
        const int number = atomicAdd(p.counter, 1); /* a block with a later number has begun later */
        backward_tile t = {-1, 0, {0, 0, 0, 0}};
        if (number < p.tiles)
            t = keys_tile_at<T>(p, number);
        pipe_wait_empty(s.kv_bar, kv.parity);
        s.tile = t;
        if (t.row < 0 || t.range.begin >= t.range.end) {
            mbar_arrive(smem_addr(&s.kv_bar.full));
            if (t.row < 0)
                return;
        } else {
            mbar_arrive_expect_tx(smem_addr(&s.kv_bar.full), s.k.bytes + s.v.bytes);
            tile_load(s.k, k_map, &s.kv_bar.full, t.head, t.row);
            tile_load(s.v, v_map, &s.kv_bar.full, t.head, t.row);
        }
        kv.next();
        for (keys_walk<T> x(p, t); x.left > 0; x.next()) {
            uint64_t *q_full = &s.q_bar[q.slot].full, *go_full = &s.go_full[q.slot];
            pipe_wait_empty(s.q_bar[q.slot], q.parity);
            mbar_arrive_expect_tx(smem_addr(q_full), s.q[0].bytes + sizeof s.stat[0]);
            tile_load(s.q[q.slot], q_map, q_full, x.head(), x.at);
            bulk_load(smem_addr(s.stat[q.slot]), p.stat + x.head() * p.rows_padded + x.at, sizeof s.stat[0], smem_addr(q_full));
            mbar_arrive_expect_tx(smem_addr(go_full), s.go[0].bytes);
            tile_load(s.go[q.slot], go_map, go_full, x.head(), x.at);
            q.next();
        }
    }
}

/* Turns transposed scores s into probabilities; columns are queries. */
template <int NQ> INLINE void keys_probabilities(float (&s)[NQ / 2], const attn_row_stat *stat, float scale_log2)
{
#pragma unroll
    for (int j = 0; j < NQ / 8; j++) {
        const float4 x = *reinterpret_cast<const float4 *>(stat + 8 * j + threadIdx.x % 4 * 2); /* lse2, delta of two queries */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            s[4 * j + 2 * r] = probability(s[4 * j + 2 * r], scale_log2, x.x);
            s[4 * j + 2 * r + 1] = probability(s[4 * j + 2 * r + 1], scale_log2, x.z);
        }
    }
}

/* Turns capped scores t into p: p goes to `a`, as the next product's operand, and s becomes p (1 - t^2). */
template <int NQ>
INLINE void keys_capped_probabilities(float (&s)[NQ / 2], uint32_t (&a)[NQ / 16][4], const attn_row_stat *stat, float scale_log2)
{
#pragma unroll
    for (int j = 0; j < NQ / 8; j++) {
        const float4 x = *reinterpret_cast<const float4 *>(stat + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = 2 * j + r;
            const float left = probability(s[2 * i], scale_log2, x.x), right = probability(s[2 * i + 1], scale_log2, x.z);
            a[i / 4][i % 4] = pack_bf16(left, right);
            s[2 * i] = left * attn_cap_slope(s[2 * i]);
            s[2 * i + 1] = right * attn_cap_slope(s[2 * i + 1]);
        }
    }
}

/* Turns dp = V dO^T into dS^T = p (dp - delta). */
template <int NQ> INLINE void keys_score_gradient(float (&dp)[NQ / 2], const float (&p)[NQ / 2], const attn_row_stat *stat)
{
#pragma unroll
    for (int j = 0; j < NQ / 8; j++) {
        const float4 x = *reinterpret_cast<const float4 *>(stat + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            dp[4 * j + 2 * r] = p[4 * j + 2 * r] * (dp[4 * j + 2 * r] - x.y);
            dp[4 * j + 2 * r + 1] = p[4 * j + 2 * r + 1] * (dp[4 * j + 2 * r + 1] - x.w);
        }
    }
}

/* Returns the mask of a fragment whose rows are keys, the first `row`, and whose columns are queries. */
INLINE fragment_mask mask_of_keys(const backward_params &p, int row)
{
    fragment_mask f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int k = row + fragment_row() + 8 * r;
        f.begin[r] = k < p.mask.sk ? p.keys[k].from : 0;
        f.end[r] = k < p.mask.sk ? p.keys[k].to : 0;
    }
    return f;
}

/* Starts the product that gives the transposed scores of the queries in the slot of `q`. */
template <class T> INLINE void keys_scores(typename T::shared &s, int w, const ring<T::STAGES> &q, float (&acc)[T::NQ / 2])
{
    pipe_wait_full(s.q_bar[q.slot], q.parity);
    wgmma_fence();
    product_nt(acc, s.k, 64 * w, s.q[q.slot]);
    wgmma_commit();
}

/* Stores a warpgroup's part of dS for all warpgroups. */
template <class T> INLINE void keys_store(typename T::shared &s, int w, ring<2> &ds, const uint32_t (&da)[T::NQ / 16][4])
{
    tile_store(s.ds[ds.slot], 64 * w, da);
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbar_arrive(smem_addr(&s.ds_full[ds.slot]));
    ds.next();
}

/* Starts the product that gives dQ of the previous step; `ds` is the slot in which this step's dS will be stored. */
template <class T> INLINE void keys_dq(typename T::shared &s, int w, const ring<2> &ds, bool begun, float (&dq)[T::COLUMNS / 2])
{
    if (begun)
        mbar_wait(smem_addr(&s.ds_full[ds.slot ^ 1]), ds.parity ^ (ds.slot == 0));
    wgmma_fence();
    product_dq<T::COLUMNS>(dq, s.ds[ds.slot ^ 1], s.k, w * T::COLUMNS);
    wgmma_commit();
}

/* Processes all queries of one key tile. The next scores are computed beside dK of these queries; the last step recomputes its
 * own instead, because the compiler serialises products that begin in a branch.
 *
 * dQ of a step is computed beside the next one's products, so that warpgroups need not meet: one computes probabilities while
 * another one's products run. A warpgroup stores its part of dS after its dQ of the step before. So once all of a step's dS is
 * there, nobody reads the buffer before it any more. Nothing may be in flight at the loop's end: ptxas then serialises all
 * products.
 *
 * In a tile's first step, dQ is computed from whatever is there, and dropped (again to avoid a branch). */
template <class T>
INLINE void keys_attend(typename T::shared &s, const backward_params &p, const backward_tile &t, int w, ring<T::STAGES> &q,
                        ring<2> &ds, ring<T::WRITERS> &buffer, float (&dk)[T::D / 2], float (&dv)[T::D / 2])
{
    constexpr int NQ = T::NQ;
    constexpr bool EARLY = T::D <= 64; /* 1: there are registers for dP beside dQ */
    const fragment_mask rows = mask_of_keys(p, t.row + 64 * w);
    float acc[NQ / 2], dp[NQ / 2], dq[T::COLUMNS / 2];
    uint32_t pa[NQ / 16][4], da[NQ / 16][4];
    bool begun = false;
    keys_scores<T>(s, w, q, acc);
    wgmma_wait<0>();
    fragment_ready(acc);
    for (keys_walk<T> x(p, t); x.left > 0; x.next()) {
        const int slot = q.slot;
        mbar_wait(smem_addr(&s.go_full[slot]), q.parity);
        if constexpr (EARLY) {
            wgmma_fence();
            product_nt(dp, s.v, 64 * w, s.go[slot]);
            wgmma_commit();
        }
        if (T::CAP)
            fragment_cap(acc, p.scores);
        fragment_apply_mask<NQ>(acc, rows, t.range, x.at);
        if (T::CAP) {
            keys_capped_probabilities<NQ>(acc, pa, s.stat[slot], p.scores.log2);
        } else {
            keys_probabilities<NQ>(acc, s.stat[slot], p.scores.log2);
            fragment_pack<NQ>(pa, acc);
        }
        keys_dq<T>(s, w, ds, begun, dq);
        wgmma_fence();
        product_rn<NQ>(dv, pa, s.go[slot]);
        wgmma_commit();
        if constexpr (EARLY) {
            wgmma_wait<2>(); /* dP */
        } else {
            wgmma_wait<1>(); /* dQ */
            fragment_ready(dq);
            if (begun)
                hand_dq<T>(s, p, dq, w, buffer);
            wgmma_fence();
            product_nt(dp, s.v, 64 * w, s.go[slot]);
            wgmma_commit();
            wgmma_wait<0>();
        }
        fragment_ready(dp);
        keys_score_gradient<NQ>(dp, acc, s.stat[slot]);
        fragment_pack<NQ>(da, dp);
        if constexpr (EARLY) {
            wgmma_wait<1>(); /* dQ */
            fragment_ready(dq);
        }
        keys_store<T>(s, w, ds, da);
        if (x.left > 1)
            q.next();
        keys_scores<T>(s, w, q, acc);
        wgmma_fence();
        product_rn<NQ>(dk, da, s.q[slot]);
        wgmma_commit();
        if (EARLY && begun)
            hand_dq<T>(s, p, dq, w, buffer);
        begun = true;
        wgmma_wait<0>();
        fragment_ready(acc);
        fragment_ready(dv);
        fragment_ready(dk);
        pipe_release(s.q_bar[slot]);
    }
    keys_dq<T>(s, w, ds, true, dq);
    wgmma_wait<0>();
    fragment_ready(dq);
    hand_dq<T>(s, p, dq, w, buffer);
    q.next();
    pipe_release(s.kv_bar);
}

/* Clears dS, from which the first step computes a dQ that is dropped. */
template <class T> INLINE void keys_clear(typename T::shared &s, int w)
{
    const uint32_t zero[T::NQ / 16][4] = {};
    tile_store(s.ds[1], 64 * w, zero);
    fence_proxy_async();
    bar_sync(1, WARPGROUP * T::CONSUMERS);
}

template <class T> INLINE void keys_consume(typename T::shared &s, const backward_params &p, int w)
{
    ring<1> kv;
    ring<T::STAGES> q;
    ring<T::WRITERS> buffer;
    ring<2> ds;
    keys_clear<T>(s, w);
    for (;;) {
        pipe_wait_full(s.kv_bar, kv.parity);
        const backward_tile t = s.tile;
        kv.next();
        if (t.row < 0)
            break;
        float dk[T::D / 2] = {}, dv[T::D / 2] = {};
        if (t.range.begin >= t.range.end)
            pipe_release(s.kv_bar);
        else
            keys_attend<T>(s, p, t, w, q, ds, buffer, dk, dv);
        if (t.range.begin >= t.range.end && p.accumulate)
            continue;
        store_gradient<T::D>(p.dk, dk, p.scale, t.row + 64 * w, p.mask.sk, t.head, p.hk, p.head_dim, p.accumulate);
        store_gradient<T::D>(p.dv, dv, 1, t.row + 64 * w, p.mask.sk, t.head, p.hk, p.value_dim, p.accumulate);
    }
}

template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    keys_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap go_map,
                const __grid_constant__ CUtensorMap dq_map, const backward_params p)
{
#if LT_SM90A
    LT_SHARED(typename T::shared, s);
    if (threadIdx.x == 0) {
        mbar_init(smem_addr(&s.kv_bar.full), 1);
        mbar_init(smem_addr(&s.kv_bar.empty), 4 * T::CONSUMERS + T::WRITERS);
        for (int i = 0; i < T::WRITERS; i++) {
            mbar_init(smem_addr(&s.dq_bar[i].full), 4 * T::CONSUMERS);
            mbar_init(smem_addr(&s.dq_bar[i].empty), 1);
        }
        for (int i = 0; i < 2; i++)
            mbar_init(smem_addr(&s.ds_full[i]), 4 * T::CONSUMERS);
        for (int i = 0; i < T::STAGES; i++) {
            pipe_init(s.q_bar[i], T::CONSUMERS);
            mbar_init(smem_addr(&s.go_full[i]), 1);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int w = warpgroup_index() - 1;
    if (w < 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            keys_produce<T>(s, p, &q_map, &k_map, &v_map, &go_map);
        else if (threadIdx.x % 32 == 0 && (int)threadIdx.x / 32 <= T::WRITERS)
            order_dq<T>(s, p, &dq_map, threadIdx.x / 32 - 1);
    } else {
        setmaxnreg_inc<240>();
        keys_consume<T>(s, p, w);
    }
#endif
}

#endif
