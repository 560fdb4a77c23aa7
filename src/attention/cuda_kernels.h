/* The two families of CUDA kernels behind cuda_attention.h, chosen by the device's compute capability. Private to src/attention.
 *
 * Callers (cuda_attention.c) have checked attributes and addresses; sq, sk > 0 and below 2^31. */
#ifndef LTRAIN_ATTENTION_CUDA_KERNELS_H
#define LTRAIN_ATTENTION_CUDA_KERNELS_H

#include "attention/cuda_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the kernels of sm80_*.cu (cp.async, ldmatrix, mma.sync), which run on every device from sm_80 on. */
int64_t attn_sm80_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);
enum status attn_sm80_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                              struct CUstream_st *stream);
enum status attn_sm80_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                               struct CUstream_st *stream);

/* Computes by sm90_*.cu (TMA, mbarrier, wgmma), on capability 90 only. `supports` tells whether there is a kernel for this call;
 * if not, sm80's are used. */
int attn_sm90_supports(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);
int64_t attn_sm90_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);
enum status attn_sm90_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                              struct CUstream_st *stream);
enum status attn_sm90_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                               struct CUstream_st *stream);

/* Tells whether the call goes to the sm90 kernels. */
int attention_cuda_on_sm90(enum op_kind kind, const struct op_attrs *attrs, const struct attn_cuda *cuda);

#define ATTN_SM90_SHARED (227 * 1024) /* bytes of shared memory that the sm90 kernels are made for */
#define ATTN_WIDE_SHARED (163 * 1024) /* bytes for sm80 kernels with head dimensions above 256 */
#define ATTN_SM90_WORK_ALIGN 128

/* Limits of sums over millions of rows. Tensor cores round every addition towards zero, so a sum of 2^20 rows comes out too small
 * by some 0.4%.
 *
 * sm_90a's forward, where it has the registers (up to head dim 192), stores the sum of ATTN_GROUP key tiles in memory and begins
 * anew. A backward launch sums over at most ATTN_SEGMENT rows, a multiple of all tiles; later launches add to the stored results. */
#ifndef ATTN_GROUP
#define ATTN_GROUP 64
#define ATTN_SEGMENT 65536
/* most bytes of q and do of the heads that sm90's backward pass processes at a time: about the size of an L2 cache */
#define ATTN_TOGETHER (64 << 20)
#endif

/* Results of the first launch of every backward pass (cuda_prepare.cu, plain CUDA for any architecture), which later kernels read
 * instead of delta, lse, lo and hi. Rows are padded to a multiple of ATTN_ROW_PAD, so that tiles load them without a check. */
#define ATTN_ROW_PAD 128
struct attn_row_stat {
    float
        lse2; /* lse * log2(e); +inf for a query without keys and for padding, so that p = exp2(s * scale * log2(e) - lse2) is 0 */
    float delta; /* rowsum(do * o); 0 for a query without keys and for padding */
};
struct attn_row_span {
    int32_t from, to; /* keys [from, to) of this call; 0, 0 for padding */
};
struct attn_rows {
    struct attn_row_stat *stat; /* [hq][rows_padded] */
    struct attn_row_span *span; /* [rows_padded] */
    int64_t padded;
};

static inline int64_t attn_rows_bytes(const struct op_attrs *attrs)
{
    return round_up(attrs->attn.sq, ATTN_ROW_PAD) * 8 * (attrs->attn.hq + 1);
}

static inline struct attn_rows attn_rows_of(const struct op_attrs *attrs, void *work)
{
    struct attn_rows rows;
    rows.padded = round_up(attrs->attn.sq, ATTN_ROW_PAD);
    rows.stat = (struct attn_row_stat *)work;
    rows.span = (struct attn_row_span *)((char *)work + rows.padded * 8 * attrs->attn.hq);
    return rows;
}

/* Offsets in sm90's `work` of the parts for a backward pass; they follow the arrays of struct attn_rows. */
struct attn_sm90_work {
    int64_t counter; /* an int */
    int64_t keys;    /* struct attn_row_span [sk]: the queries that attend each key */
    int64_t turns;   /* uint32_t [hq, tiles of ATTN_TURN_ROWS queries] */
    int64_t turns_bytes;
    int64_t bytes; /* bytes of all parts */
};
#define ATTN_TURN_ROWS 64

static inline struct attn_sm90_work attn_sm90_work_of(const struct op_attrs *attrs)
{
    struct attn_sm90_work w;
    w.counter = round_up(attn_rows_bytes(attrs), ATTN_SM90_WORK_ALIGN);
    w.keys = w.counter + ATTN_SM90_WORK_ALIGN;
    w.turns = w.keys + attrs->attn.sk * (int64_t)sizeof(struct attn_row_span);
    w.turns_bytes = ceil_div(attrs->attn.sq, ATTN_TURN_ROWS) * attrs->attn.hq * (int64_t)sizeof(uint32_t);
    w.bytes = w.turns + w.turns_bytes;
    return w;
}

/* Fills `rows` (and zeroes dq if asked), as the first launch of a backward pass. arg: OP_ATTN_BWD's. */
enum status attn_cuda_prepare(const struct op_attrs *attrs, void *const *arg, const struct attn_rows *rows, int zero_dq,
                              struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
