/* An experiment: Hopper's backward attention with 128 queries in a step, for heads up to 64 without a soft cap; other shapes use
 * the usual kernel. `tools/gpu-check.sh bench-ways` builds and measures libraries with this file in place of sm90_backward.cu. */
#define attn_sm90_backward attn_sm90_backward_narrow
#include "attention/sm90_backward.cu"
#undef attn_sm90_backward

/* A variant of keys_shape in which a warpgroup computes all columns of dQ for its 64 queries, so that each operand that a product
 * reads serves twice as many columns. Stages, dS and dQ are rings of two buffers each, which advance together. */
struct wide_shape {
    static constexpr int D = 64, NQ = 128, CONSUMERS = 2, STAGES = 2, M = 64 * CONSUMERS;
    static constexpr bool CAP = false;
    static constexpr int WRITERS = 2;
    static constexpr int threads = WARPGROUP * (CONSUMERS + 1);
    static constexpr int COLUMNS = D;

    struct shared {
        smem_tile<M, D> k, v;
        smem_tile<NQ, D> q[STAGES], go[STAGES];
        smem_tile<M, NQ> ds[2];
        alignas(1024) float dq[WRITERS][CONSUMERS][COLUMNS / 32][64][32]; /* dQ of 64 queries for each buffer and warpgroup */
        attn_row_stat stat[STAGES][NQ];
        pipe kv_bar, q_bar[STAGES], dq_bar[WRITERS];
        uint64_t go_full[STAGES], ds_full[2];
        backward_tile tile;
    };
};

template <>
__device__ __forceinline__ void reduce_dq<wide_shape>(wide_shape::shared &s, const backward_params &p, const CUtensorMap *dq_map,
                                                      int buffer, int w, int head, int row)
{
#pragma unroll
    for (int i = 0; i < wide_shape::COLUMNS / 32; i++)
        if (32 * i < p.head_dim)
            tma_reduce_add_3d(dq_map, smem_addr(s.dq[buffer][w][i]), 32 * i, head, row + 64 * w);
}

/* Returns the rings' position at step n: keeping n needs one register, whereas each ring needs two. */
INLINE ring<2> ring_at(int n)
{
    ring<2> r;
    r.slot = n & 1;
    r.parity = n >> 1 & 1;
    return r;
}

/* Returns the first (half 0) or second half of a fragment's columns. */
INLINE float (&half_of(float (&x)[64], int half))[32]
{
    return *reinterpret_cast<float(*)[32]>(x + 32 * half);
}

INLINE uint32_t (&half_of(uint32_t (&a)[8][4], int half))[4][4]
{
    return *reinterpret_cast<uint32_t(*)[4][4]>(a + 4 * half);
}

/* Computes product_nt with half of b's rows. */
INLINE void half_product_nt(float (&s)[32], const smem_tile<128, 64> &a, int first, const smem_tile<128, 64> &b, int half)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_ss<64, K_MAJOR, K_MAJOR>(s, operand_by_columns(a, first, k), operand_by_columns(b, 64 * half, k),
                                       k ? WGMMA_ADD : WGMMA_REPLACE);
}

/* Computes product_rn with half of b's rows. */
INLINE void half_product_rn(float (&acc)[32], const uint32_t (&a)[4][4], const smem_tile<128, 64> &b, int half)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_rs<64, MN_MAJOR>(acc, a[k], operand_by_rows(b, 0, 4 * half + k), WGMMA_ADD);
}

/* Does the work of keys_store and hand_dq, with addresses that differ only in bits that change with the ring position, so that
 * the compiler keeps no addresses in registers from step to step. */
INLINE void wide_store(wide_shape::shared &s, int w, const ring<2> &step, const uint32_t (&da)[8][4])
{
    const int lane = threadIdx.x % 32, row = 64 * w + threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
    const uint32_t at = smem_addr(&s.ds[step.slot].chunk[0][row][(lane / 16 ^ (row & 7)) * 8]);
#pragma unroll
    for (int k = 0; k < 8; k++)
        stmatrix_x4((at ^ k % 4 * 32) + k / 4 * (uint32_t)sizeof s.ds[0].chunk[0], da[k]);
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbar_arrive(smem_addr(&s.ds_full[step.slot]));
}

INLINE void wide_hand(wide_shape::shared &s, const backward_params &p, const float (&dq)[32], int w, const ring<2> &step)
{
    float *all = &s.dq[0][0][0][0][0];
    const int row = fragment_row(), lane = threadIdx.x % 4;
    const int at = (int)(&s.dq[step.slot][w][0][row][(lane / 2 ^ (row & 7)) * 4 + lane % 2 * 2] - all);
    pipe_wait_empty(s.dq_bar[step.slot], step.parity);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            *reinterpret_cast<float2 *>(all + (at ^ j % 4 * 8) + (64 * (j / 4) + 8 * r) * 32) =
                make_float2(dq[4 * j + 2 * r] * p.scale, dq[4 * j + 2 * r + 1] * p.scale);
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbar_arrive(smem_addr(&s.dq_bar[step.slot].full));
}

/* Starts the product dQ of a step; if `begun`, waits for the step's dS first. */
INLINE void wide_dq(wide_shape::shared &s, int w, const ring<2> &step, bool begun, float (&dq)[32])
{
    if (begun)
        mbar_wait(smem_addr(&s.ds_full[step.slot]), step.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < wide_shape::M / 16; i++)
        wgmma_ss<64, MN_MAJOR, MN_MAJOR>(dq, operand_by_rows(s.ds[step.slot], w, i), operand_by_rows(s.k, 0, i),
                                         i ? WGMMA_ADD : WGMMA_REPLACE);
    wgmma_commit();
}

/* Turns scores into probabilities. Reads ranges and row statistics in every step, since no registers are left to keep them. */
INLINE void wide_probabilities(const wide_shape::shared &s, const backward_params &p, int w, int slot, float (&acc)[64], int at)
{
    const attn_range range = s.tile.range;
    if (attn_classify(range, at, wide_shape::NQ) != ATTN_FULL)
        fragment_apply_mask<wide_shape::NQ>(acc, mask_of_keys(p, s.tile.row + 64 * w), range, at);
    keys_probabilities<wide_shape::NQ>(acc, s.stat[slot], p.scores.log2);
}

/* Does the work of keys_attend. A step computes dS and dV together, one half of the queries after the other, the last half first,
 * in the order of the usual steps of 64. Its dK and the previous step's dQ run while the next step's probabilities are computed;
 * the last step computes its own scores again. */
template <>
__device__ __forceinline__ void keys_attend<wide_shape>(wide_shape::shared &s, const backward_params &p, const backward_tile &t,
                                                        int w, ring<2> &q, ring<2> &, ring<2> &, float (&dk)[32], float (&dv)[32])
{
    float acc[64];
    bool begun = false;
    int n = q.slot + 2 * (int)q.parity;
    keys_walk<wide_shape> x(p, t);
    keys_scores<wide_shape>(s, w, q, acc);
    wgmma_wait<0>();
    fragment_ready(acc);
    wide_probabilities(s, p, w, q.slot, acc, x.at);
    do {
        const ring<2> step = ring_at(n);
        float dq[32];
        uint32_t da[8][4];
        mbar_wait(smem_addr(&s.go_full[step.slot]), step.parity);
#pragma unroll
        for (int half = 1; half >= 0; half--) {
            float dp[32];
            uint32_t pa[4][4];
            wgmma_fence();
            half_product_nt(dp, s.v, 64 * w, s.go[step.slot], half);
            wgmma_commit();
            fragment_pack<64>(pa, half_of(acc, half));
            wgmma_fence();
            half_product_rn(dv, pa, s.go[step.slot], half);
            wgmma_commit();
            wgmma_wait<1>();
            fragment_ready(dp);
            keys_score_gradient<64>(dp, half_of(acc, half), s.stat[step.slot] + 64 * half);
            fragment_pack<64>(half_of(da, half), dp);
            wgmma_wait<0>();
            fragment_ready(dv);
        }
        x.next();
        const ring<2> next = ring_at(n + (x.left > 0));
        keys_scores<wide_shape>(s, w, next, acc);
        wide_dq(s, w, ring_at(n - 1), begun, dq);
        wgmma_fence();
        half_product_rn(dk, half_of(da, 1), s.q[step.slot], 1);
        half_product_rn(dk, half_of(da, 0), s.q[step.slot], 0);
        wgmma_commit();
        wgmma_wait<2>();
        fragment_ready(acc);
        if (x.left > 0)
            wide_probabilities(s, p, w, next.slot, acc, x.at);
        wgmma_wait<1>();
        fragment_ready(dq);
        if (begun)
            wide_hand(s, p, dq, w, ring_at(n - 1));
        begun = true;
        wgmma_wait<0>();
        fragment_ready(dk);
        wide_store(s, w, step, da); /* written only after this warpgroup's dQ of the previous step, as in keys_attend */
        pipe_release(s.q_bar[step.slot]);
        n++;
    } while (x.left > 0);
    float dq[32];
    wide_dq(s, w, ring_at(n - 1), true, dq);
    wgmma_wait<0>();
    fragment_ready(dq);
    wide_hand(s, p, dq, w, ring_at(n - 1));
    q = ring_at(n);
    pipe_release(s.kv_bar);
}

extern "C" enum status attn_sm90_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                          struct CUstream_st *stream)
{
    if (op_wider_dim(attrs) <= 64 && attrs->attn.cap == 0.0f)
        return run<wide_shape>(attrs, arg, cuda, stream);
    return attn_sm90_backward_narrow(attrs, arg, cuda, stream);
}
