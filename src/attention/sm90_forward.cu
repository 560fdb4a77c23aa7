/* Flash attention forward for Hopper (sm_90a): FlashAttention-3's schedule (Shah et al. 2024) over an interval mask.
 *
 * A block runs one producer warp (TMA) and CONSUMERS warpgroups of 64 query rows each. It takes tiles (64 * CONSUMERS query rows
 * of one head), the first by its number, more from an atomic counter until none is left.
 *
 * Consumers overlap twice. The softmax of key tile j + 1 waits only for its score product; meanwhile the value product of tile j
 * runs. And an order of named barriers lets one warpgroup issue its products while the others do their softmax. */
#include "attention/cuda_kernels.h"
#include "attention/sm90_host.cuh"
#include "attention/sm90_tile.cuh"

namespace
{

struct forward_params {
    attn_mask mask;
    void *o;      /* [sq, hq, value_dim], bf16 or fp32 */
    float *lse;   /* [hq, sq] */
    int *counter; /* tiles taken beyond each block's first */
    int hq, hk, value_dim, tiles;
    attn_scores scores;
};

/* A tile, as the producer describes it to the consumers. */
struct forward_tile {
    int row, head; /* row < 0: no more tiles */
    attn_range keys;
};

template <int D_, int N_, int CONSUMERS_, int STAGES_, bool CAP_ = false> struct forward_shape {
    static constexpr int D = D_, N = N_, CONSUMERS = CONSUMERS_, STAGES = STAGES_, M = 64 * CONSUMERS_;
    static constexpr bool CAP = CAP_;
    static constexpr int threads = WARPGROUP * (CONSUMERS + 1);
    static constexpr bool GROUPED = D < 256; /* 1: there are registers to add up groups of key tiles */

    struct shared {
        smem_tile<M, D> q;
        smem_tile<N, D> k[STAGES], v[STAGES];
        pipe q_bar, k_bar[STAGES], v_bar[STAGES];
        forward_tile tile;
    };
};

/* Returns the tile of a number. KV heads are outermost, so that all running blocks share one head's keys in the L2; then query
 * rows, the last (longest under a causal mask) first; the query heads of one KV head innermost. */
template <class T> INLINE forward_tile tile_at(const forward_params &p, int number)
{
    const int group = p.hq / p.hk, rows = (p.mask.sq + T::M - 1) / T::M;
    const int kv = number / (rows * group), rest = number % (rows * group);
    forward_tile t;
    t.row = (rows - 1 - rest / group) * T::M;
    t.head = kv * group + rest % group;
    t.keys = attn_keys_of(p.mask, t.row, T::M);
    t.keys.begin = t.keys.begin / T::N * T::N;
    return t;
}

/* Loads the next key or value tile as soon as its slot is empty. */
template <class TILE, int STAGES>
INLINE void slot_load(TILE (&tile)[STAGES], pipe (&bar)[STAGES], ring<STAGES> &at, const CUtensorMap *map, int head, int row)
{
    pipe_wait_empty(bar[at.slot], at.parity);
    mbar_arrive_expect_tx(smem_addr(&bar[at.slot].full), TILE::bytes);
    tile_load(tile[at.slot], map, &bar[at.slot].full, head, row);
    at.next();
}

template <class T>
INLINE void produce(typename T::shared &s, const forward_params &p, const CUtensorMap *q_map, const CUtensorMap *k_map,
                    const CUtensorMap *v_map)
{
    ring<1> q;
    ring<T::STAGES> k, v;
    for (int number = blockIdx.x;; number = gridDim.x + atomicAdd(p.counter, 1)) {
        forward_tile t = {-1, 0, {0, 0, 0, 0}};
        if (number < p.tiles)
            t = tile_at<T>(p, number);
        pipe_wait_empty(s.q_bar, q.parity);
        s.tile = t;
        if (t.row < 0 || t.keys.begin >= t.keys.end) {
            mbar_arrive(smem_addr(&s.q_bar.full));
            if (t.row < 0)
                return;
        } else {
            mbar_arrive_expect_tx(smem_addr(&s.q_bar.full), s.q.bytes);
            tile_load(s.q, q_map, &s.q_bar.full, t.head, t.row);
        }
        q.next();
        const int kv_head = t.head / (p.hq / p.hk);
        if (t.keys.begin >= t.keys.end)
            continue;
        slot_load(s.k, s.k_bar, k, k_map, kv_head, t.keys.begin);
        for (int at = t.keys.begin; at < t.keys.end;
             at += T::N) { /* in this order, as the next keys are needed before these values */
            if (at + T::N < t.keys.end)
                slot_load(s.k, s.k_bar, k, k_map, kv_head, at + T::N);
            slot_load(s.v, s.v_bar, v, v_map, kv_head, at);
        }
    }
}

/* Running softmax of a thread's two rows: the maximum in units of log2; sum covers the thread's own columns until the end. */
struct softmax_state {
    float max[2], sum[2];
};

/* Holds o, the sums and the maxima of the groups of key tiles so far: volatile, so that it lies in local memory and takes no
 * registers. */
template <int D> struct groups {
    volatile float o[D / 2], sum[2], max[2];
};

/* Rescales the groups so far to this one's maxima and adds this one; o and x become the sum. */
template <int D> INLINE void groups_add(const groups<D> &g, float (&o)[D / 2], softmax_state &x)
{
    float shrink[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        shrink[r] = ex2(g.max[r] - (x.max[r] == -INFINITY ? 0 : x.max[r]));
        x.sum[r] = fmaf(g.sum[r], shrink[r], x.sum[r]);
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] = fmaf(g.o[i], shrink[i / 2 % 2], o[i]);
}

/* Ends a group; more: 1 if groups came before. */
template <int D> INLINE void groups_end(groups<D> &g, float (&o)[D / 2], softmax_state &x, bool more)
{
    if (more)
        groups_add(g, o, x);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        g.sum[r] = x.sum[r];
        g.max[r] = x.max[r];
        x.sum[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        g.o[i] = o[i];
        o[i] = 0;
    }
}

/* Turns scores s into probabilities relative to the new maximum. shrink: factor for earlier sums. */
template <int N> INLINE void softmax_step(float (&s)[N / 2], softmax_state &x, float (&shrink)[2], float scale_log2)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(LT_FULL_MASK, top, 1));
        top = fmaxf(top, __shfl_xor_sync(LT_FULL_MASK, top, 2));
        top = fmaxf(x.max[r], top * scale_log2);
        const float base = top == -INFINITY ? 0 : top; /* no key yet: every p is exp2(-inf) = 0 */
        shrink[r] = ex2(x.max[r] - base);              /* exactly 1 if the maximum stays */
        x.max[r] = top;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &e = s[4 * j + 2 * r + c];
                e = ex2(fmaf(e, scale_log2, -base));
                sum += e;
            }
        x.sum[r] = x.sum[r] * shrink[r] + sum;
    }
}

/* Stores o and lse of a warpgroup's rows. In bf16, lanes of a quad exchange so that each stores 16 bytes. */
template <int D, bool FP32>
INLINE void store_rows(const forward_params &p, const forward_tile &t, int first, float (&o)[D / 2], softmax_state &x)
{
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = x.sum[r];
        sum += __shfl_xor_sync(LT_FULL_MASK, sum, 1);
        sum += __shfl_xor_sync(LT_FULL_MASK, sum, 2);
        const float inverse = sum == 0 ? 0 : 1 / sum; /* NaN stays NaN */
        const int row = t.row + first + fragment_row() + 8 * r;
        if (row < p.mask.sq && quad == 0)
            p.lse[(int64_t)t.head * p.mask.sq + row] = sum == 0 ? -INFINITY : x.max[r] * 0.69314718f + logf(sum);
        const int64_t at = ((int64_t)row * p.hq + t.head) * p.value_dim;
        if constexpr (FP32) {
#pragma unroll
            for (int b = 0; b < D / 8; b++)
                if (row < p.mask.sq && 8 * b < p.value_dim)
                    *reinterpret_cast<float2 *>((float *)p.o + at + 8 * b + 2 * quad) =
                        make_float2(o[4 * b + 2 * r] * inverse, o[4 * b + 2 * r + 1] * inverse);
        } else {
#pragma unroll
            for (int b = 0; b < D / 32; b++) {
                uint32_t w[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    w[i] = pack_bf16(o[16 * b + 4 * i + 2 * r] * inverse, o[16 * b + 4 * i + 2 * r + 1] * inverse);
                quad_transpose(w);
                const int col = 32 * b + 8 * quad;
                if (row < p.mask.sq && col < p.value_dim)
                    *reinterpret_cast<uint4 *>((uint16_t *)p.o + at + col) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
}

/* Waits for warpgroup w's turn to issue products. */
template <class T> INLINE void turn_wait(int w)
{
    bar_sync(1 + w, 2 * WARPGROUP);
}

template <class T> INLINE void turn_pass(int w)
{
    bar_arrive(1 + (w + 1) % T::CONSUMERS, 2 * WARPGROUP);
}

/* Computes one query tile: the sums over its key tiles. */
template <class T>
INLINE void attend(typename T::shared &s, const forward_params &p, const forward_tile &t, int w, ring<T::STAGES> &kv,
                   float (&o)[T::D / 2], softmax_state &x)
{
    constexpr int N = T::N, GROUP = ATTN_GROUP * N;
    groups<T::D> g;
    const fragment_mask rows = mask_of_queries(p.mask, t.row + 64 * w);
    float acc[N / 2], shrink[2];
    uint32_t a[N / 16][4];

    pipe_wait_full(s.k_bar[kv.slot], kv.parity);
    wgmma_fence();
    product_nt(acc, s.q, 64 * w, s.k[kv.slot]);
    wgmma_commit();
    wgmma_wait<0>();
    fragment_ready(acc);
    pipe_release(s.k_bar[kv.slot]);
    if (T::CAP)
        fragment_cap(acc, p.scores);
    fragment_apply_mask<N>(acc, rows, t.keys, t.keys.begin);
    softmax_step<N>(acc, x, shrink, p.scores.log2);
    fragment_pack<N>(a, acc);

    for (int at = t.keys.begin + N; at < t.keys.end; at += N) {
        ring<T::STAGES> v = kv;
        kv.next();
        pipe_wait_full(s.k_bar[kv.slot], kv.parity);
        turn_wait<T>(w);
        wgmma_fence();
        product_nt(acc, s.q, 64 * w, s.k[kv.slot]);
        wgmma_commit();
        pipe_wait_full(s.v_bar[v.slot], v.parity);
        wgmma_fence();
        product_rn<N>(o, a, s.v[v.slot]);
        wgmma_commit();
        turn_pass<T>(w);
        wgmma_wait<1>();
        fragment_ready(acc);
        pipe_release(s.k_bar[kv.slot]);
        if (T::CAP)
            fragment_cap(acc, p.scores);
        fragment_apply_mask<N>(acc, rows, t.keys, at);
        softmax_step<N>(acc, x, shrink, p.scores.log2);
        wgmma_wait<0>();
        fragment_ready(o);
        pipe_release(s.v_bar[v.slot]);
        fragment_scale(o, shrink);
        fragment_pack<N>(a, acc);
        if (T::GROUPED && (at - t.keys.begin) % GROUP == 0)
            groups_end(g, o, x, at - t.keys.begin > GROUP);
    }
    pipe_release(s.q_bar);
    pipe_wait_full(s.v_bar[kv.slot], kv.parity);
    wgmma_fence();
    product_rn<N>(o, a, s.v[kv.slot]);
    wgmma_commit();
    wgmma_wait<0>();
    fragment_ready(o);
    pipe_release(s.v_bar[kv.slot]);
    kv.next();
    if (T::GROUPED && t.keys.end - t.keys.begin > GROUP)
        groups_add(g, o, x);
}

template <class T, bool FP32> INLINE void consume(typename T::shared &s, const forward_params &p, int w)
{
    ring<1> q;
    ring<T::STAGES> kv;
    if (w == T::CONSUMERS - 1)
        turn_pass<T>(w);
    for (;;) {
        pipe_wait_full(s.q_bar, q.parity);
        const forward_tile t = s.tile;
        q.next();
        if (t.row < 0)
            break;
        float o[T::D / 2] = {};
        softmax_state x = {{-INFINITY, -INFINITY}, {0, 0}};
        if (t.keys.begin < t.keys.end)
            attend<T>(s, p, t, w, kv, o, x);
        else
            pipe_release(s.q_bar);
        store_rows<T::D, FP32>(p, t, 64 * w, o, x);
    }
    if (w == 0)
        turn_wait<T>(0); /* takes the last turn, which no warpgroup used */
}

/* Runs a block of the forward pass. FP32: o's type; a choice at run time would cost registers that are not free. */
template <class T, bool FP32>
__global__ void __launch_bounds__(T::threads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const forward_params p)
{
#if LT_SM90A
    LT_SHARED(typename T::shared, s);
    if (threadIdx.x == 0) {
        pipe_init(s.q_bar, T::CONSUMERS);
        for (int i = 0; i < T::STAGES; i++) {
            pipe_init(s.k_bar[i], T::CONSUMERS);
            pipe_init(s.v_bar[i], T::CONSUMERS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int w = warpgroup_index() - 1;
    if (w < 0) {
        setmaxnreg_dec<T::CONSUMERS == 2 ? 24 : 32>();
        if (threadIdx.x == 0)
            produce<T>(s, p, &q_map, &k_map, &v_map);
    } else {
        setmaxnreg_inc<T::CONSUMERS == 2 ? 240 : 160>();
        consume<T, FP32>(s, p, w);
    }
#endif
}

template <class T> enum status run(const struct op_attrs *a, void *const *arg, const struct attn_cuda *cuda, cudaStream_t stream)
{
    LT_SHARED_FITS(typename T::shared, LT_SHARED_SM90);
    CUtensorMap q, k, v;
    TRY(sm90_map(&q, arg[2], a->attn.sq, a->attn.hq, a->attn.head_dim, T::M));
    TRY(sm90_map(&k, arg[3], a->attn.sk, a->attn.hk, a->attn.head_dim, T::N));
    TRY(sm90_map(&v, arg[4], a->attn.sk, a->attn.hk, (int)op_value_dim(a), T::N));
    forward_params p = {};
    p.mask = sm90_mask(a, arg[5], arg[6]);
    p.o = arg[0];
    p.lse = (float *)arg[1];
    p.counter = (int *)arg[7];
    p.hq = a->attn.hq;
    p.hk = a->attn.hk;
    p.value_dim = (int)op_value_dim(a);
    p.tiles = ceil_div(a->attn.sq, T::M) * a->attn.hq;
    p.scores = attn_scores_of(a);
    TRY(CUDA_STATUS(cudaMemsetAsync(p.counter, 0, sizeof *p.counter, stream)));
    return launch(dim3((unsigned)min_i64(p.tiles, cuda->processors)), dim3(T::threads), sizeof(typename T::shared), stream,
                  a->attn.o_fp32 ? forward_kernel<T, true> : forward_kernel<T, false>, q, k, v, p);
}

} // namespace

/* Shapes. Head dimension 64: exponentials cost as much as the products, so more rows share a key tile. 192 and 256: shared memory
 * and the accumulators of o leave room for 64 keys. Other head dimensions, and the narrower of two, use the next larger shape,
 * padded with zeros. */
typedef forward_shape<64, 128, 3, 2> forward_64;
typedef forward_shape<96, 128, 2, 2> forward_96;
typedef forward_shape<128, 128, 2, 2> forward_128;
typedef forward_shape<192, 64, 2, 2> forward_192;
typedef forward_shape<256, 64, 2, 2> forward_256;
/* Shapes with a cap, for head dimensions of published models. */
typedef forward_shape<128, 128, 2, 2, true> forward_128_capped;
typedef forward_shape<256, 64, 2, 2, true> forward_256_capped;

extern "C" enum status attn_sm90_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                         struct CUstream_st *stream)
{
    const int64_t d = op_wider_dim(attrs);
    if (attrs->attn.cap > 0.0f)
        return d <= 128 ? run<forward_128_capped>(attrs, arg, cuda, stream) : run<forward_256_capped>(attrs, arg, cuda, stream);
    if (d <= 64)
        return run<forward_64>(attrs, arg, cuda, stream);
    if (d <= 96)
        return run<forward_96>(attrs, arg, cuda, stream);
    if (d <= 128)
        return run<forward_128>(attrs, arg, cuda, stream);
    if (d <= 192)
        return run<forward_192>(attrs, arg, cuda, stream);
    return run<forward_256>(attrs, arg, cuda, stream);
}
