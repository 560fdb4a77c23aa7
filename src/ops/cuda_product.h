/* Calls of OP_GEMM as cuBLASLt computes them: products of matrices stored by columns, bf16 or fp32 both, and casts. Plain C: plans need the
 * scratch on machines without CUDA.
 *
 * Row-major C = op(A) op(B) is, by columns, C^T = op(B)^T op(A)^T. A matrix stored by rows as [r, c] is [c, r] by columns with
 * the same leading dimension. So the operands change places and nothing moves.
 *
 * cuBLASLt has no product of an fp32 and a bf16 matrix. An fp32 operand beside one in bf16 is cast in `work`, one slab of C's rows (A is
 * cast) or columns (B is cast) after the other. k is never divided, so slabs change no sum's order. */
#ifndef LTRAIN_OPS_CUDA_PRODUCT_H
#define LTRAIN_OPS_CUDA_PRODUCT_H

#include "base/status.h"
#include "ops/gemm.h"

#ifndef CUDA_PRODUCT_SLAB                      /* smaller in tests */
#define CUDA_PRODUCT_SLAB ((int64_t)256 << 20) /* bytes of bf16 that are cast at a time; more if 128 rows take more */
#endif

/* A matrix of a product, stored by columns. */
struct cuda_matrix {
    int64_t rows, cols, ld; /* ld: elements from one column to the next */
    int32_t type;
    int32_t transposed; /* 1: the product takes the transpose */
    /* bytes to which addresses are aligned: as many as the leading dimension preserves from column to column, at most 16 */
    uint32_t alignment;
};

/* D = op(A) op(B), or D += op(A) op(B). */
struct cuda_product {
    struct cuda_matrix a, b, d;
    int32_t accumulate;
};

/* Division of a call into slabs. */
struct cuda_slabs {
    int cast;            /* argument that is cast: 1 (a), 2 (b); 0: none, so that one slab is the whole call */
    int64_t size, count; /* rows or columns of C in a slab (the last one may have fewer), and number of slabs */
    int64_t bytes;       /* bytes of a slab's bf16 operand at the start of `work`; a multiple of 256 */
};

struct cuda_slab {
    struct cuda_product product;
    int64_t at[3];                /* byte offsets of this slab's C, a and b from the start of the call's */
    int64_t cast_rows, cast_cols; /* size of the operand that is cast, as stored by rows; 0: none is cast */
    int64_t cast_ld, from_ld;     /* leading dimensions of that operand, in bf16 and in fp32 */
};

/* Refuses calls that cuBLASLt cannot do (ERR_INVALID). The functions below take calls that pass. */
enum status cuda_product_check(const struct gemm_shape *s);
struct cuda_slabs cuda_product_slabs(const struct gemm_shape *s);
struct cuda_slab cuda_product_slab(const struct gemm_shape *s, const struct cuda_slabs *all, int64_t index);
/* Returns the bytes that an algorithm of cuBLASLt may use, after the slab in `work`. capability: 10 * major + minor. */
int64_t cuda_product_most_scratch(int capability);
/* Returns the bytes of the argument `work`, whose address is a multiple of 256. */
int64_t cuda_product_workspace(const struct gemm_shape *s, int capability);

#endif
