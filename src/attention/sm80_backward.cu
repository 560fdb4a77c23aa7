// Flash attention backward for sm_80 and later: tile sizes by head dimension and shared memory, and the launches of both modes.
#include "attention/sm80_backward_kv.cuh"
#include "attention/sm80_backward_q.cuh"

#include "device/cuda/launch.cuh"
#include "program/target.h"

// Returns the width that a tile must have.
static int wider(const sm80_backward_args &a)
{
    return a.head_dim > a.value_dim ? a.head_dim : a.value_dim;
}

template <int D, int M, int N, int WARPS, int STAGES, int PART, int WHAT, int LIMIT, int OUT = D>
static enum status kv_run(sm80_backward_args a, struct CUstream_st *stream)
{
    typedef sm80_kv_shared<D, M, N, STAGES, WHAT> shared;
    LT_SHARED_FITS(shared, LIMIT);
    a.tiles = (int)ceil_div(a.mask.sk, M);
    return launch(dim3((unsigned)(a.tiles * a.hk * (D / OUT))), dim3(WARPS * 32), sizeof(shared), stream,
                  sm80_backward_kv_kernel<D, M, N, WARPS, STAGES, PART, WHAT, OUT>, a);
}

template <int D, int M, int N, int WARPS, int STAGES, int LIMIT, bool CAP = false, int OUT = D>
static enum status q_run(sm80_backward_args a, struct CUstream_st *stream)
{
    typedef sm80_q_shared<D, M, N, STAGES> shared;
    LT_SHARED_FITS(shared, LIMIT);
    static_assert(ATTN_ROW_PAD % M == 0, "a tile reads its rows' stat unguarded");
    a.tiles = (int)ceil_div(a.mask.sq, M);
    return launch(dim3((unsigned)(a.tiles * a.hq * (D / OUT))), dim3(WARPS * 32), sizeof(shared), stream,
                  sm80_backward_q_kernel<D, M, N, WARPS, STAGES, CAP, OUT>, a);
}

// Chooses tiles for at most 128 columns. Eight warps per processor: 255 registers leave room for no more, and fewer do not hide
// latency. So there are two blocks of 4 warps, or one of 8. With 100 KiB of shared memory (sm_86, sm_89) there is one of 8, with
// one stage if two do not fit.
//
// At head dimension 64 a warp takes 32 keys, which halves its reads of shared memory, in parts of 32 queries, which keeps it in
// 255 registers. With dS, two such blocks do not fit on an A100: then there is one of 256 keys, with half as many additions to
// dq.
template <int WHAT> static enum status keys_run_large(const sm80_backward_args &a, struct CUstream_st *stream)
{
    constexpr int KEYS = WHAT & SM80_DQ ? 256 : 128;
    if (wider(a) <= 64)
        return kv_run<64, KEYS, 64, KEYS / 32, 2, 32, WHAT, LT_SHARED_SM80>(a, stream);
    if (wider(a) <= 96)
        return kv_run<96, 128, 64, 8, 2, 64, WHAT, LT_SHARED_SM80>(a, stream);
    return kv_run<128, 128, 64, 8, 2, 64, WHAT, LT_SHARED_SM80>(a, stream);
}

template <int WHAT> static enum status keys_run_small(const sm80_backward_args &a, struct CUstream_st *stream)
{
    if (wider(a) <= 64)
        return kv_run<64, 128, 64, 8, 2, 64, WHAT, LT_SHARED_SM86>(a, stream);
    if (wider(a) <= 96)
        return kv_run<96, 128, 64, 8, 1, 64, WHAT, LT_SHARED_SM86>(a, stream);
    return kv_run<128, 128, 32, 8, 1, 32, WHAT, LT_SHARED_SM86>(a, stream);
}

template <int WHAT> static enum status keys_run(const sm80_backward_args &a, int large, struct CUstream_st *stream)
{
    return large ? keys_run_large<WHAT>(a, stream) : keys_run_small<WHAT>(a, stream);
}

static enum status keys_run_256(const sm80_backward_args &a, int large, int fast, struct CUstream_st *stream)
{
    if (!large) {
        TRY((kv_run<256, 64, 32, 4, 2, 32, SM80_DV, LT_SHARED_SM86>(a, stream)));
        return kv_run<256, 64, 32, 4, 1, 32, SM80_DK, LT_SHARED_SM86>(a, stream);
    }
    TRY((kv_run<256, 128, 32, 8, 2, 32, SM80_DV, LT_SHARED_SM80>(a, stream)));
    return fast ? kv_run<256, 64, 32, 4, 2, 32, SM80_DK | SM80_DQ, LT_SHARED_SM80>(a, stream)
                : kv_run<256, 128, 32, 8, 1, 32, SM80_DK, LT_SHARED_SM80>(a, stream);
}

static enum status keys_run_512(const sm80_backward_args &a, struct CUstream_st *stream)
{
    TRY((kv_run<512, 64, 32, 4, 1, 32, SM80_DV, LT_SHARED_SM80, 256>(a, stream)));
    return kv_run<512, 64, 16, 4, 1, 16, SM80_DK, LT_SHARED_SM80, 256>(a, stream);
}

static enum status queries_run(const sm80_backward_args &a, int large, struct CUstream_st *stream)
{
    if (wider(a) > 256)
        return q_run<512, 64, 16, 4, 1, LT_SHARED_SM80, false, 256>(a, stream);
    if (wider(a) <= 64)
        return large ? q_run<64, 128, 64, 4, 2, LT_SHARED_SM80>(a, stream) : q_run<64, 128, 64, 8, 2, LT_SHARED_SM86>(a, stream);
    if (wider(a) <= 96)
        return q_run<96, 128, 64, 8, 2, LT_SHARED_SM86>(a, stream);
    if (wider(a) <= 128)
        return large ? q_run<128, 128, 64, 8, 2, LT_SHARED_SM80>(a, stream)
                     : q_run<128, 128, 32, 8, 1, LT_SHARED_SM86>(a, stream);
    return large ? q_run<256, 128, 32, 8, 1, LT_SHARED_SM80>(a, stream) : q_run<256, 64, 32, 4, 1, LT_SHARED_SM86>(a, stream);
}

// Runs dK and dV with a cap, deterministically, at head dimensions of published models; others are padded to them.
static enum status keys_run_capped(const sm80_backward_args &a, int large, struct CUstream_st *stream)
{
    constexpr int DV = SM80_DV | SM80_CAP, DK = SM80_DK | SM80_CAP, BOTH = DV | DK;
    if (wider(a) <= 128)
        return large ? kv_run<128, 128, 32, 8, 2, 32, BOTH, LT_SHARED_SM80>(a, stream)
                     : kv_run<128, 128, 32, 8, 1, 32, BOTH, LT_SHARED_SM86>(a, stream);
    if (!large) {
        TRY((kv_run<256, 64, 32, 4, 2, 32, DV, LT_SHARED_SM86>(a, stream)));
        return kv_run<256, 64, 32, 4, 1, 32, DK, LT_SHARED_SM86>(a, stream);
    }
    TRY((kv_run<256, 128, 32, 8, 2, 32, DV, LT_SHARED_SM80>(a, stream)));
    return kv_run<256, 128, 32, 8, 1, 32, DK, LT_SHARED_SM80>(a, stream);
}

static enum status queries_run_capped(const sm80_backward_args &a, int large, struct CUstream_st *stream)
{
    if (wider(a) <= 128)
        return large ? q_run<128, 128, 64, 8, 2, LT_SHARED_SM80, true>(a, stream)
                     : q_run<128, 128, 32, 8, 1, LT_SHARED_SM86, true>(a, stream);
    return large ? q_run<256, 128, 32, 8, 1, LT_SHARED_SM80, true>(a, stream)
                 : q_run<256, 64, 32, 4, 1, LT_SHARED_SM86, true>(a, stream);
}

// Makes `a` the arguments of the segment from `first` on, of the n rows that a launch sums over.
static void segment_start(sm80_backward_args *a, int64_t first, int64_t n, int accumulate)
{
    a->first = (int)first;
    a->end = (int)min_i64(n, first + ATTN_SEGMENT);
    a->accumulate = accumulate || first > 0;
}

extern "C" enum status attn_sm80_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                          struct CUstream_st *stream)
{
    const int large = cuda->shared_bytes >= LT_SHARED_SM80, capped = attrs->attn.cap > 0.0f;
    const int fast = cuda->mode == ATTN_FAST && target_can_be_fast(cuda->capability, cuda->shared_bytes, attrs);
    sm80_backward_args a = {};
    a.dq = (float *)arg[0], a.dk = (float *)arg[1], a.dv = (float *)arg[2];
    a.q = (const bf16_bits *)arg[3], a.k = (const bf16_bits *)arg[4], a.v = (const bf16_bits *)arg[5];
    a.g = (const bf16_bits *)arg[8];
    a.mask = attn_mask{(const int32_t *)arg[9], (const int32_t *)arg[10], (int32_t)attrs->attn.sq, (int32_t)attrs->attn.sk,
                       attrs->attn.k0};
    a.rows = attn_rows_of(attrs, arg[11]);
    a.hq = attrs->attn.hq, a.hk = attrs->attn.hk, a.head_dim = attrs->attn.head_dim, a.value_dim = (int)op_value_dim(attrs);
    a.scale = attrs->attn.scale, a.scores = attn_scores_of(attrs);

    TRY(attn_cuda_prepare(attrs, arg, &a.rows, fast, stream));
    for (int64_t first = 0; first < max_i64(1, attrs->attn.sq); first += ATTN_SEGMENT) {
        segment_start(&a, first, attrs->attn.sq, attrs->attn.accumulate);
        if (capped)
            TRY(keys_run_capped(a, large, stream));
        else if (wider(a) > 256)
            TRY(keys_run_512(a, stream));
        else if (wider(a) > 128)
            TRY(keys_run_256(a, large, fast, stream));
        else
            TRY(fast ? keys_run<SM80_DV | SM80_DK | SM80_DQ>(a, large, stream) : keys_run<SM80_DV | SM80_DK>(a, large, stream));
    }
    for (int64_t first = 0; first < max_i64(1, attrs->attn.sk) && !fast; first += ATTN_SEGMENT) {
        segment_start(&a, first, attrs->attn.sk, 0);
        TRY((capped ? queries_run_capped : queries_run)(a, large, stream));
    }
    return OK;
}
