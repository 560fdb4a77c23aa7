/* MXFP4: rows of 4-bit floating-point numbers in blocks of 32, with a power of two for each block (Open Compute Project,
 * "Microscaling Formats (MX)", 1.0).
 *
 * A number is map[code] * 2^(scale - 127). Packed, a matrix whose rows are whole blocks is two parts, each padded to 64 bytes: bytes
 * scale[rows, columns / 32], then codes [rows, columns / 2], two a byte, the first one in the lower half. Both have the order of
 * gpt-oss' files. */
#ifndef LTRAIN_BASE_MXFP4_H
#define LTRAIN_BASE_MXFP4_H

#include "base/num.h"

enum { MXFP4_BLOCK = 32, MXFP4_VALUES = 16, MXFP4_ALIGN = 64 };

/* Largest scale with which every code is finite in fp32 and bf16: 6 * 2^125. */
enum { MXFP4_LARGEST_SCALE = 252 };

extern const float mxfp4_map[MXFP4_VALUES]; /* sign, two bits of exponent, one of mantissa */

static inline int64_t mxfp4_scale_bytes(int64_t n)
{
    return round_up(n / MXFP4_BLOCK, MXFP4_ALIGN);
}

static inline int64_t mxfp4_bytes(int64_t n)
{
    return mxfp4_scale_bytes(n) + round_up(n / 2, MXFP4_ALIGN);
}

/* Returns 2^(scale - 127), which is subnormal for 0. */
static inline float mxfp4_scale(uint8_t scale)
{
    const uint32_t bits = scale > 0 ? (uint32_t)scale << 23 : 0x400000u;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Returns the code of number i. */
static inline int mxfp4_code(const uint8_t *code, int64_t i)
{
    return i % 2 ? code[i / 2] >> 4 : code[i / 2] & 15;
}

/* Dequantises numbers [first, first + count) of a matrix. */
void mxfp4_dequantise(const uint8_t *scale, const uint8_t *code, int64_t first, int64_t count, float *out);

#endif
