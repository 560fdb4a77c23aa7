/* Reading and writing runs of elements in their storage dtype (F32 or BF16) as fp32. */
#ifndef LTRAIN_OPS_ROWS_H
#define LTRAIN_OPS_ROWS_H

#include "base/num.h"

/* Elements that kernels take at a time: stack buffers of this size hold converted operands, and stay in the L1 cache. */
enum { ROWS_BLOCK = 1024 };

/* Fewer elements than this are not worth waking threads for. */
enum { ROWS_SERIAL = 16384 };

void rows_from_bf16(float *out /* [n] */, const bf16 *in /* [n] */, int64_t n);
void rows_to_bf16(bf16 *out /* [n] */, const float *in /* [n] */, int64_t n);

/* Elements [at, at + n) of x as fp32: x's own memory if it is F32, else converted into buf. */
static inline const float *rows_read(const void *x, int64_t at, int64_t n, int32_t dtype, float *buf)
{
    if (dtype == F32)
        return (const float *)x + at;
    rows_from_bf16(buf, (const bf16 *)x + at, n);
    return buf;
}

/* Where to compute the elements of y from `at`; rows_write() puts them into y. */
static inline float *rows_target(void *y, int64_t at, int32_t dtype, float *buf)
{
    return dtype == F32 ? (float *)y + at : buf;
}

static inline void rows_write(void *y, int64_t at, int64_t n, int32_t dtype, const float *target)
{
    if (dtype != F32)
        rows_to_bf16((bf16 *)y + at, target, n);
}

/* The i-th block of ROWS_BLOCK elements of n. */
static inline int64_t rows_block_size(int64_t i, int64_t n)
{
    return min_i64(ROWS_BLOCK, n - i * ROWS_BLOCK);
}

#endif
