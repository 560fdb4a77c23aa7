/* The CUDA twins of the ops: same attributes and arguments as the CPU kernels (program/op_table.h), in device memory, plus a
 * stream.
 *
 * Every entry checks its shape, enqueues on `stream` and returns: it never synchronises and never allocates. Any alignment of
 * whole elements is accepted; 16-byte vectors are used if every operand allows them. Results are deterministic: there are no
 * atomic sums. AdamW, the sum of squares, clipping, the embedding's gradient, routing and its gradient, and everything that only
 * moves or adds elements give the CPU twin's bits. The others differ by rounding (exponentials, order of sums).
 *
 * An index of experts, pairs or rows that does not exist is an error on the CPU. Here it is read nowhere, and makes NaN of the sums
 * that need it.
 *
 * OP_LOSS, OP_SUMSQ, OP_EMBED_GRAD and OP_PERMUTE have no `work` argument: they keep partial sums and sorted rows in static device
 * memory. So at most one stream per device may run each of them at a time. */
#ifndef LTRAIN_OPS_CUDA_OPS_H
#define LTRAIN_OPS_CUDA_OPS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "device/kernel.h"

/* Fills in the entries of all ops of this folder except OP_GEMM. Entries that others fill in: OP_GEMM (cuda_gemm.h), OP_ATTN_FWD
 * and OP_ATTN_BWD (attention/cuda_attention.h), collectives (comm/cuda_nccl.h). The executor refuses an op without an entry.
 * OP_COPY is a copy within the device's memory. */
void ops_cuda_kernels(op_kernel *table[OP_COUNT]);

/* Moves rows between token layouts: gather dst[i] = src[index[i]], scatter dst[index[i]] = src[i] with distinct indices.
 * row_bytes is even. A negative index is padding: gather writes a row of zero bytes, scatter skips that source row. */
enum status ops_cuda_gather_rows(void *dst /* [rows, row_bytes] */, const void *src, const int32_t *index /* [rows] */,
                                 int64_t rows, int64_t row_bytes, void *stream);
enum status ops_cuda_scatter_rows(void *dst, const void *src /* [rows, row_bytes] */, const int32_t *index /* [rows] */,
                                  int64_t rows, int64_t row_bytes, void *stream);

/* Casts dst[i, j] = src[i, j] to bf16, for a product's operand (ops/cuda_product.h). dst is [rows, dst_ld], src [rows, src_ld];
 * cols columns are read and written. They must not overlap. */
enum status ops_cuda_cast_rows(bf16 *dst, int64_t dst_ld, const float *src, int64_t src_ld, int64_t rows, int64_t cols,
                               void *stream);

/* The entries, each beside its CPU twin: ops_cuda_gelu, ... */
#define ENTRY_MATRIX(name) op_kernel ops_cuda_##name;
#define ENTRY_ELEMENTWISE(name) op_kernel ops_cuda_##name;
#define ENTRY_ATTENTION(name)
#define ENTRY_RECURRENT(name)
#define ENTRY_COLLECTIVE(name)
#define OP(KIND, name, class, ...) ENTRY_##class(name)
#define CPU_OP(...)
#include "program/op_table.h"
#undef ENTRY_MATRIX
#undef ENTRY_ELEMENTWISE
#undef ENTRY_ATTENTION
#undef ENTRY_RECURRENT
#undef ENTRY_COLLECTIVE

#ifdef __cplusplus
}
#endif
#endif
