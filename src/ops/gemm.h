/* Matrix multiplication C (+)= op(A) op(B), row-major, operands F32 or BF16, fp32 accumulation.
 *
 * The kernel is OpenBLAS's sgemm, run by one thread per call on a fixed grid of C tiles that depends on nothing but the shape;
 * OpenMP threads share the tiles. So the result does not depend on the number of threads. (OpenBLAS's own threading does: it
 * splits k and its edge tiles differently for different thread counts; measured with 0.3.21, 2,018 of 17,528 shapes changed bits
 * between 1 and 2 threads. Alignment changed none.) It does depend on the core type that OpenBLAS picks: that belongs to the
 * numerics key.
 *
 * BF16 operands are converted in blocks of at most 1024 x 512 in `work`, never whole. A BF16 C is rounded once, after all of k;
 * accumulating into a BF16 C is not supported (it is overwritten). */
#ifndef LTRAIN_OPS_GEMM_H
#define LTRAIN_OPS_GEMM_H

#include "base/status.h"

#include <stdint.h>

struct gemm_shape {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements between rows as stored; below 2^31 */
    int32_t ta, tb;        /* A is stored [m,k] (ta = 0) or [k,m]; B is stored [k,n] (tb = 0) or [n,k] */
    int32_t a_type, b_type, c_type;
    int32_t accumulate; /* C += (F32 C only) */
};

/* Before the first ops_gemm: opens OpenBLAS and makes it single-threaded, so that OpenMP is the only source of threads. Each
 * thread's first call maps OpenBLAS's packing buffer: memory outside any plan (the overhead line). */
enum status ops_gemm_init(void);

int64_t ops_gemm_workspace(const struct gemm_shape *s);
void ops_gemm(const struct gemm_shape *s, void *c /* [m,ldc] */, const void *a, const void *b, float *work);

#endif
