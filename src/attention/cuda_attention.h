/* Flash attention on CUDA: the contract of attention.h (layouts, mask, empty rows), in bf16, enqueued on a stream.
 *
 * Differences from the CPU twin: q, k, v, o, do are BF16 only; head_dim and value_dim are multiples of 8 up to 512, and zeros in
 * shared memory fill up the narrower one's tiles, so that it takes the wider one's time; scale is positive; q, k, v, o, do, dq, dk,
 * dv and work are aligned to 16 bytes. P and dS are rounded to bf16 before the second products (fp32 accumulation everywhere). A
 * NaN in a key or value row may reach every query row of a tile that contains it, attended or not. */
#ifndef LTRAIN_ATTENTION_CUDA_ATTENTION_H
#define LTRAIN_ATTENTION_CUDA_ATTENTION_H

#include "base/status.h"
#include "program/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t points to it */

enum attn_cuda_mode {
    ATTN_DETERMINISTIC, /* the same bits every time: sm_90a's dQ by additions in a fixed order, sm_80's by a kernel of its own */
    ATTN_FAST,          /* sm_80's dQ by fp32 additions in the order in which blocks happen to arrive, where target_can_be_fast */
};

/* What the kernels must know about the device, read once at start. */
struct attn_cuda {
    int capability;       /* 10 * major + minor: 80, 86, 89, 90, ... */
    int processors;       /* streaming multiprocessors */
    int64_t shared_bytes; /* a block's shared memory limit after opting in: 166912 (A100), 101376 (sm_86, sm_89), 232448 (H100) */
    enum attn_cuda_mode mode;
};

/* Bytes of `work` for OP_ATTN_FWD or OP_ATTN_BWD; grows with sq x hq, never with sq x sk. */
int64_t attention_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);
/* ERR_INVALID says which attribute no kernel takes. */
enum status attention_cuda_check(const struct op_attrs *attrs, const struct attn_cuda *cuda);
/* ERR_INVALID: an argument is not aligned as kernels need it. */
enum status attention_cuda_check_addresses(enum op_kind kind, void *const *arg);

/* arg in the order of program/op_table.h, device addresses. ERR_INVALID for shapes or addresses outside the contract; nothing is
 * launched then. ERR_IO: a launch failed. Neither synchronises nor allocates. */
enum status attention_cuda_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                   struct CUstream_st *stream);
enum status attention_cuda_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
