/* Reading and writing elements in their storage dtype (F32 or BF16) as fp32. */
#ifndef LTRAIN_OPS_ROWS_H
#define LTRAIN_OPS_ROWS_H

#include "base/num.h"
#include "ops/inline.h"

/* elements that kernels take at a time */
enum { ROWS_BLOCK = 1024 };

/* fewer elements than this are not worth waking threads for */
enum { ROWS_SERIAL = 16384 };

void rows_from_bf16(float *out /* [n] */, const bf16 *in /* [n] */, int64_t n);
void rows_to_bf16(bf16 *out /* [n] */, const float *in /* [n] */, int64_t n);

/* Returns elements [at, at + n) of x as fp32: x's own memory if it is F32, else converted into buf. */
static inline const float *rows_read(const void *x, int64_t at, int64_t n, int32_t dtype, float *buf)
{
    if (dtype == F32)
        return (const float *)x + at;
    rows_from_bf16(buf, (const bf16 *)x + at, n);
    return buf;
}

/* Rounds as bf16_from_float(), but without its branch, so that loops vectorise. */
INLINE bf16 row_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    return (bf16)((x == x ? rounded : nan) >> 16);
}

/* Returns element i of x. Loops take dtype as a constant: they are written once, as inline functions, and called for either type. */
INLINE float row_get(const void *x, int64_t i, int32_t dtype)
{
    return dtype == F32 ? ((const float *)x)[i] : bf16_to_float(((const bf16 *)x)[i]);
}

INLINE void row_set(void *y, int64_t i, int32_t dtype, float value)
{
    if (dtype == F32)
        ((float *)y)[i] = value;
    else
        ((bf16 *)y)[i] = row_round(value);
}

/* Returns the size of the i-th block of ROWS_BLOCK elements of n. */
static inline int64_t rows_block_size(int64_t i, int64_t n)
{
    return min_i64(ROWS_BLOCK, n - i * ROWS_BLOCK);
}

#endif
