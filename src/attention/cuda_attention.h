/* Flash attention on CUDA: the contract of attention.h (layouts, mask, empty rows), in bf16, enqueued on a stream.
 *
 * Differences from the CPU twin: q, k, v, o, do are BF16 only. head_dim and value_dim are multiples of 8 up to 512; zeros fill up
 * the narrower one's tiles in shared memory, so it takes the wider one's time. scale is positive. q, k, v, o, do, dq, dk, dv and
 * work are aligned to 16 bytes. P and dS are rounded to bf16 before the second products (fp32 accumulation everywhere). A NaN in
 * a key or value row may reach every query row of a tile that contains it, attended or not. */
#ifndef LTRAIN_ATTENTION_CUDA_ATTENTION_H
#define LTRAIN_ATTENTION_CUDA_ATTENTION_H

#include "base/status.h"
#include "program/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t points to it */

enum attn_cuda_mode {
    ATTN_DETERMINISTIC, /* the same bits every time: sm_90a adds dQ in a fixed order, sm_80 has a kernel of its own for it */
    ATTN_FAST,          /* sm_80 adds dQ in fp32 in the order in which blocks happen to arrive, if target_can_be_fast */
};

/* Facts about the device, read once at start. */
struct attn_cuda {
    int capability; /* 10 * major + minor: 80, 86, 89, 90, ... */
    int processors; /* streaming multiprocessors */
    int64_t
        shared_bytes; /* shared memory limit of a block after opting in: 166912 (A100), 101376 (sm_86, sm_89), 232448 (H100) */
    enum attn_cuda_mode mode;
};

/* Returns the bytes of `work` for OP_ATTN_FWD or OP_ATTN_BWD; they grow with sq x hq, never with sq x sk. */
int64_t attention_cuda_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);
/* Refuses attributes that no kernel takes; ERR_INVALID names the attribute. */
enum status attention_cuda_check(const struct op_attrs *attrs, const struct attn_cuda *cuda);
/* Refuses arguments that are not aligned as kernels need it (ERR_INVALID). */
enum status attention_cuda_check_addresses(enum op_kind kind, void *const *arg);

/* Launches the kernels; neither synchronises nor allocates. arg: device addresses in the order of program/op_table.h.
 * ERR_INVALID: shapes or addresses outside the contract; nothing is launched then. ERR_IO: a launch failed. */
enum status attention_cuda_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                   struct CUstream_st *stream);
enum status attention_cuda_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
