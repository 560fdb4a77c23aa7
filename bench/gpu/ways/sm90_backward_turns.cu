/* An experiment: Hopper's backward attention in which warpgroups take turns, for heads up to 64 without a soft cap; other shapes
 * use the usual kernel. `tools/gpu-check.sh bench-ways` builds and measures libraries with this file in place of
 * sm90_backward.cu. */
#define attn_sm90_backward attn_sm90_backward_apart
#include "attention/sm90_backward.cu"
#undef attn_sm90_backward

struct turns_shape : keys_shape<64, 3> {
};

/* Waits at a named barrier for the turn of warpgroup w, as in the forward pass: a warpgroup starts its products in its turn,
 * while the other one computes probabilities. */
INLINE void turn_wait(int w)
{
    bar_sync(2 + w, 2 * WARPGROUP);
}

INLINE void turn_pass(int w)
{
    bar_arrive(2 + (w ^ 1), 2 * WARPGROUP);
}

/* Does the work of keys_attend in turns. A turn begins with the previous step's dQ and ends once this step's dK and the next
 * step's scores are started. */
template <>
__device__ __forceinline__ void keys_attend<turns_shape>(turns_shape::shared &s, const backward_params &p, const backward_tile &t,
                                                         int w, ring<3> &q, ring<2> &ds, ring<2> &buffer, float (&dk)[32],
                                                         float (&dv)[32])
{
    typedef turns_shape T;
    constexpr int NQ = T::NQ;
    const fragment_mask rows = mask_of_keys(p, t.row + 64 * w);
    float acc[NQ / 2], dp[NQ / 2], dq[T::COLUMNS / 2];
    uint32_t pa[NQ / 16][4], da[NQ / 16][4];
    bool begun = false;
    if (w == 1)
        turn_pass(w);
    keys_scores<T>(s, w, q, acc);
    wgmma_wait<0>();
    fragment_ready(acc);
    for (keys_walk<T> x(p, t); x.left > 0; x.next()) {
        const int slot = q.slot;
        mbar_wait(smem_addr(&s.go_full[slot]), q.parity);
        wgmma_fence();
        product_nt(dp, s.v, 64 * w, s.go[slot]);
        wgmma_commit();
        fragment_apply_mask<NQ>(acc, rows, t.range, x.at);
        keys_probabilities<NQ>(acc, s.stat[slot], p.scores.log2);
        fragment_pack<NQ>(pa, acc);
        turn_wait(w);
        keys_dq<T>(s, w, ds, begun, dq);
        wgmma_fence();
        product_rn<NQ>(dv, pa, s.go[slot]);
        wgmma_commit();
        wgmma_wait<2>();
        fragment_ready(dp);
        keys_score_gradient<NQ>(dp, acc, s.stat[slot]);
        fragment_pack<NQ>(da, dp);
        wgmma_wait<1>();
        fragment_ready(dq);
        keys_store<T>(s, w, ds, da);
        if (x.left > 1)
            q.next();
        keys_scores<T>(s, w, q, acc);
        wgmma_fence();
        product_rn<NQ>(dk, da, s.q[slot]);
        wgmma_commit();
        turn_pass(w);
        if (begun)
            hand_dq<T>(s, p, dq, w, buffer);
        begun = true;
        wgmma_wait<0>();
        fragment_ready(acc);
        fragment_ready(dv);
        fragment_ready(dk);
        pipe_release(s.q_bar[slot]);
    }
    if (w == 0)
        turn_wait(0); /* waits for the last turn, which no warpgroup used */
    keys_dq<T>(s, w, ds, true, dq);
    wgmma_wait<0>();
    fragment_ready(dq);
    hand_dq<T>(s, p, dq, w, buffer);
    q.next();
    pipe_release(s.kv_bar);
}

extern "C" enum status attn_sm90_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                          struct CUstream_st *stream)
{
    if (op_wider_dim(attrs) <= 64 && attrs->attn.cap == 0.0f)
        return run<turns_shape>(attrs, arg, cuda, stream);
    return attn_sm90_backward_apart(attrs, arg, cuda, stream);
}
