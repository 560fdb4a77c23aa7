/* Matrices in the format of LLM.int8: rows of 8-bit numbers with a scale each (Dettmers et al. 2022, "LLM.int8()"), bit by bit as
 * bitsandbytes 0.50 quantises weights.
 *
 * A number is code * scale / 127; the scale is the largest magnitude of its row. Weights are rounded to fp16 before they are
 * quantised, as in bitsandbytes.
 *
 * Packed, a matrix is two parts, each padded to 64 bytes: fp32 scale[rows], then int8 code[rows, columns]. */
#ifndef LTRAIN_BASE_ROWS8_H
#define LTRAIN_BASE_ROWS8_H

#include "base/num.h"

enum { ROWS8_ALIGN = 64 };
#define ROWS8_LARGEST 65504.0f /* fp16's largest number */

static inline int64_t rows8_scale_bytes(int64_t rows)
{
    return round_up(rows * 4, ROWS8_ALIGN);
}

static inline int64_t rows8_bytes(int64_t rows, int64_t columns)
{
    return rows8_scale_bytes(rows) + round_up(rows * columns, ROWS8_ALIGN);
}

/* Quantises one row of finite numbers and returns its scale. If some number rounds beyond ROWS8_LARGEST, the scale is infinite
 * and the codes are undefined. */
float rows8_quantise(const float *x, int64_t columns, int8_t *code);

/* Returns a code's number. */
static inline float rows8_number(int8_t code, float scale)
{
    const float product = (float)code * scale;
    return product * 7.874015718698502e-3f;
}

#endif
