/* Matrix multiplication C (+)= scale op(A) op(B), row-major, operands F32 or BF16, accumulated in fp32.
 *
 * Operands are packed into panels, shared by all threads, and multiplied by tiles in registers (AVX-512: 12 x 32; AVX2: 6 x 16).
 * An element of C is the sum over blocks of k, in order, of sums over k, in order. So its bits depend on k and the instruction
 * set, not on threads, alignment, or its place in C. A single row is multiplied without packing B, in another order, unless
 * ops_gemm_packed is asked.
 *
 * BF16 operands are converted to fp32 while they are packed, except with AMX (below). A BF16 C is rounded once, after all of k;
 * if it is added to, it is read as the first addend. The scale multiplies A's elements as they are packed.
 *
 * AMX multiplies tiles of bf16 pairs as they are, with sums in fp32. It is used if both operands are BF16, there is no scale, C
 * is not a BF16 matrix that is added to, and isa_has_amx(). An element of C is then added up in steps of 32 elements of k, each
 * the sum of its even elements plus that of its odd ones, in order. k up to 8192 (2048 if A is stored [k,m]) is one sum. The
 * instruction takes denormal operands as zeros and writes denormal sums as zeros. */
#ifndef LTRAIN_OPS_GEMM_H
#define LTRAIN_OPS_GEMM_H

#include "program/op.h"

#include <stdint.h>

struct cpu_stream;

struct gemm_shape {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements between rows as stored; below 2^31 */
    int32_t ta, tb;        /* A is stored [m,k] (ta = 0) or [k,m]; B is stored [k,n] (tb = 0) or [n,k] */
    int32_t a_type, b_type, c_type;
    int32_t accumulate; /* 1: C += instead of C = */
    float scale;        /* 0: no scale, as 1 */
    /* ops_gemm_packed: with an order, row i of A or B as stored is row order[i] / per of the memory given; NULL: row i */
    const int32_t *a_order, *b_order;
    int32_t per;
    const struct cpu_stream *stream; /* stream that may end the call early (device/cpu_stream.h); NULL: none */
};
struct gemm_shape gemm_shape_of(const struct op_attrs *a);

/* Returns the bytes of `work`: at most little more than 12 MiB. */
int64_t ops_gemm_workspace(const struct gemm_shape *s);
void ops_gemm(const struct gemm_shape *s, void *c /* [m,ldc] */, const void *a, const void *b, void *work);

/* Computes a product of which any number of rows, and of elements k, is one of many sizes known at run time: an element's bits are
 * the same whatever m is, 1 included, and A's or B's rows may be gathered. */
void ops_gemm_packed(const struct gemm_shape *s, void *c /* [m,ldc] */, const void *a, const void *b, void *work);
/* Returns bytes that suffice for a packed product with any m and k up to those of s. */
int64_t ops_gemm_packed_workspace(const struct gemm_shape *s);

#endif
