/* What a call of OP_GEMM becomes where cuBLASLt computes it: products of bf16 matrices stored by columns, and casts. Plain C:
 * plans need the scratch where no CUDA is.
 *
 * Row-major C = op(A) op(B) is, by columns, C^T = op(B)^T op(A)^T, and what is stored by rows as [r, c] is [c, r] by columns with
 * the same leading dimension: operands change places, and nothing moves.
 *
 * cuBLASLt has no product of an fp32 and a bf16 matrix. Where one operand of the call is fp32 it is cast to bf16 in `work`, a
 * slab of C's rows (A is cast) or columns (B is cast) after the other; k is never divided, so the slabs change no sum's order. */
#ifndef LTRAIN_OPS_CUDA_PRODUCT_H
#define LTRAIN_OPS_CUDA_PRODUCT_H

#include "base/status.h"
#include "ops/gemm.h"

#ifndef CUDA_PRODUCT_SLAB                      /* tests have smaller ones */
#define CUDA_PRODUCT_SLAB ((int64_t)256 << 20) /* bytes of bf16 that are cast at a time, unless 128 rows are more */
#endif

/* A matrix of a product, stored by columns. */
struct cuda_matrix {
    int64_t rows, cols, ld; /* ld: elements from one column to the next */
    int32_t type;
    int32_t transposed; /* the product takes its transpose */
    uint32_t alignment; /* bytes, of its address: as much as the leading dimension keeps from column to column, at most 16 */
};

/* D = op(A) op(B), or D += op(A) op(B). */
struct cuda_product {
    struct cuda_matrix a, b, d;
    int32_t accumulate;
};

/* How a call is divided. */
struct cuda_slabs {
    int cast;            /* the argument that is cast: 1 (a), 2 (b), 0: none, and the slab is the whole call */
    int64_t size, count; /* rows or columns of C of a slab; the last one has what is left */
    int64_t bytes;       /* of a slab's operand in bf16, at the start of `work`; a multiple of 256 */
};

struct cuda_slab {
    struct cuda_product product;
    int64_t at[3];                /* bytes from the start of the call's C, a and b to this slab's */
    int64_t cast_rows, cast_cols; /* of the operand that is cast, as stored by rows; 0: none is */
    int64_t cast_ld, from_ld;     /* of it in bf16 and in fp32 */
};

/* ERR_INVALID says what of the call cuBLASLt cannot do. The functions below take calls that pass. */
enum status cuda_product_check(const struct gemm_shape *s);
struct cuda_slabs cuda_product_slabs(const struct gemm_shape *s);
struct cuda_slab cuda_product_slab(const struct gemm_shape *s, const struct cuda_slabs *all, int64_t index);
/* Bytes that an algorithm of cuBLASLt may use, after the slab in `work`. capability: 10 * major + minor. */
int64_t cuda_product_most_scratch(int capability);
/* Of the argument `work`, whose address is a multiple of 256. */
int64_t cuda_product_workspace(const struct gemm_shape *s, int capability);

#endif
