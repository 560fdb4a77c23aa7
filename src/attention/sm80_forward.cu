// Flash attention forward for sm_80 and later: tile sizes by head dimension and shared memory.
#include "attention/sm80_forward.cuh"

#include "attention/cuda_kernels.h"
#include "device/cuda/launch.cuh"

template <int D, int M, int N, int WARPS, int LIMIT, bool CAP = false, int OUT = D>
static enum status forward_run(const struct op_attrs *attrs, void *const *arg, struct CUstream_st *stream)
{
    typedef sm80_forward_shared<D, M, N> shared;
    LT_SHARED_FITS(shared, LIMIT);
    sm80_forward_args a = {};
    a.o = (bf16_bits *)arg[0];
    a.o_fp32 = attrs->attn.o_fp32 ? (float *)arg[0] : NULL;
    a.lse = (float *)arg[1];
    a.q = (const bf16_bits *)arg[2];
    a.k = (const bf16_bits *)arg[3];
    a.v = (const bf16_bits *)arg[4];
    a.mask = attn_mask{(const int32_t *)arg[5], (const int32_t *)arg[6], (int32_t)attrs->attn.sq, (int32_t)attrs->attn.sk,
                       attrs->attn.k0};
    a.hq = attrs->attn.hq, a.hk = attrs->attn.hk, a.head_dim = attrs->attn.head_dim, a.value_dim = (int)op_value_dim(attrs);
    a.tiles = (int)ceil_div(attrs->attn.sq, M);
    a.scores = attn_scores_of(attrs);
    return launch(dim3((unsigned)(a.tiles * a.hq * (D / OUT))), dim3(WARPS * 32), sizeof(shared), stream,
                  sm80_forward_kernel<D, M, N, WARPS, CAP, OUT>, a);
}

// Runs with a cap, at head dimensions of published models; others are padded to them.
static enum status forward_capped(const struct op_attrs *attrs, void *const *arg, int large, struct CUstream_st *stream)
{
    if (op_wider_dim(attrs) <= 128)
        return large ? forward_run<128, 128, 64, 8, LT_SHARED_SM80, true>(attrs, arg, stream)
                     : forward_run<128, 64, 64, 4, LT_SHARED_SM86, true>(attrs, arg, stream);
    return large ? forward_run<256, 128, 64, 8, LT_SHARED_SM80, true>(attrs, arg, stream)
                 : forward_run<256, 64, 64, 4, LT_SHARED_SM86, true>(attrs, arg, stream);
}

extern "C" enum status attn_sm80_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                         struct CUstream_st *stream)
{
    const int64_t d = op_wider_dim(attrs);
    const int large = cuda->shared_bytes >= LT_SHARED_SM80;
    if (attrs->attn.cap > 0.0f)
        return forward_capped(attrs, arg, large, stream);
    // Two blocks per processor, if head dimension and registers allow: 164 KiB on an A100, 100 KiB on sm_86 and sm_89, 1 KiB of a
    // block reserved.
    if (d <= 64)
        return large ? forward_run<64, 128, 128, 4, LT_SHARED_SM80>(attrs, arg, stream) // 49 KiB
                     : forward_run<64, 128, 64, 4, LT_SHARED_SM86>(attrs, arg, stream); // 33 KiB
    if (d <= 96)
        return large ? forward_run<96, 128, 64, 4, LT_SHARED_SM80>(attrs, arg, stream) // 49 KiB
                     : forward_run<96, 64, 64, 4, LT_SHARED_SM86>(attrs, arg, stream); // 36 KiB
    if (d <= 128)
        return large ? forward_run<128, 128, 64, 4, LT_SHARED_SM80>(attrs, arg, stream) // 65 KiB
                     : forward_run<128, 64, 64, 4, LT_SHARED_SM86>(attrs, arg, stream); // 48.5 KiB
    static_assert(ATTN_WIDE_SHARED == LT_SHARED_SM80, "attention_cuda_check lets only large devices come here with wide heads");
    if (d > 256)
        return forward_run<512, 64, 32, 4, LT_SHARED_SM80, false, 256>(attrs, arg, stream); // 129 KiB
    if (large)
        return forward_run<256, 128, 64, 8, LT_SHARED_SM80>(attrs, arg, stream); // 128 KiB
    return forward_run<256, 64, 64, 4, LT_SHARED_SM86>(attrs, arg, stream);      // 96 KiB
}
