// First launch of every backward pass: delta and lse (in units of log2) side by side by head, each query's keys, and zeros in dq
// for kernels that add to it.
#include "attention/cuda_mask.cuh"

#include "attention/cuda_kernels.h"
#include "device/cuda/launch.cuh"

struct prepare_args {
    const float *delta, *lse;
    attn_mask mask;
    attn_rows rows;
    int hq;
};

// Prepares ATTN_ROW_PAD rows of one head per block, a row per thread. Heads are innermost: delta is row-major by token, so
// neighbouring blocks read the same sectors of it.
static LT_KERNEL(ATTN_ROW_PAD) prepare_kernel(const prepare_args a)
{
    const int head = blockIdx.x % a.hq, row = blockIdx.x / a.hq * ATTN_ROW_PAD + threadIdx.x;
    const bool live = row < a.mask.sq;
    const float lse = live ? a.lse[(int64_t)head * a.mask.sq + row] : -INFINITY;
    attn_row_stat stat = {INFINITY, 0}; // for a query without keys, whatever delta is
    if (lse != -INFINITY)
        stat = attn_row_stat{lse * 1.44269504f, a.delta[(int64_t)row * a.hq + head]};
    a.rows.stat[head * a.rows.padded + row] = stat;
    if (head == 0)
        a.rows.span[row] = live ? attn_row_span{attn_from(a.mask, row), attn_to(a.mask, row)} : attn_row_span{0, 0};
}

extern "C" enum status attn_cuda_prepare(const struct op_attrs *attrs, void *const *arg, const struct attn_rows *rows,
                                         int zero_dq, struct CUstream_st *stream)
{
    prepare_args a = {};
    a.delta = (const float *)arg[6];
    a.lse = (const float *)arg[7];
    a.mask = attn_mask{(const int32_t *)arg[9], (const int32_t *)arg[10], (int32_t)attrs->attn.sq, (int32_t)attrs->attn.sk,
                       attrs->attn.k0};
    a.rows = *rows;
    a.hq = attrs->attn.hq;
    if (zero_dq)
        TRY(CUDA_STATUS(
            cudaMemsetAsync(arg[0], 0, (size_t)(attrs->attn.sq * a.hq * attrs->attn.head_dim) * sizeof(float), stream)));
    return launch(dim3((unsigned)(rows->padded / ATTN_ROW_PAD * a.hq)), dim3(ATTN_ROW_PAD), 0, stream, prepare_kernel, a);
}
