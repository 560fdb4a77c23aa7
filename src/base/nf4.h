/* NF4: matrices of 4-bit numbers in blocks of 64 (Dettmers et al. 2023, "QLoRA"), with the bits that bitsandbytes 0.50 makes of them on
 * processors.
 *
 * A number is map[code] * scale, the scale being the largest magnitude of its block in the flattened matrix. Scales are fp32, or they
 * are nested ("double quantisation"): less their mean, in blocks of 256 of 8-bit numbers (base/blocks8.h has the map), they take a
 * byte each, and a number has 4.13 bits.
 *
 * Packed, a matrix of n numbers is two parts, each padded to 64 bytes. Scales: the 16 values of the map in fp32, then
 *     plain   fp32 scale[blocks]
 *     nested  fp32 mean, map[256], most[ceil(blocks / 256)], then bytes code[blocks]: scale = map[code] * most + mean
 * Codes: two a byte, the first one in the upper half. */
#ifndef LTRAIN_BASE_NF4_H
#define LTRAIN_BASE_NF4_H

#include "base/num.h"

enum { NF4_BLOCK = 64, NF4_VALUES = 16, NF4_NESTED_BLOCK = 256, NF4_NESTED_VALUES = 256, NF4_ALIGN = 64 };
enum nf4_scales { NF4_PLAIN, NF4_NESTED };

/* Largest scale, and largest of the scales in `most`: half of bf16's largest number. A scale is at most 1 times its `most`, plus
 * the mean; with this limit it is finite, and so is every number of the matrix in bf16. */
#define NF4_LARGEST 0x1.fep126

extern const float nf4_map[NF4_VALUES]; /* ascending */

static inline int64_t nf4_blocks(int64_t n)
{
    return ceil_div(n, NF4_BLOCK);
}

/* Returns the number of fp32 numbers at the beginning of the scales' part; the bytes of nested scales follow them. */
static inline int64_t nf4_scale_floats(int64_t n, enum nf4_scales s)
{
    return NF4_VALUES + (s == NF4_PLAIN ? nf4_blocks(n) : 1 + NF4_NESTED_VALUES + ceil_div(nf4_blocks(n), NF4_NESTED_BLOCK));
}

static inline int64_t nf4_scale_bytes(int64_t n, enum nf4_scales s)
{
    return round_up(nf4_scale_floats(n, s) * 4 + (s == NF4_NESTED ? nf4_blocks(n) : 0), NF4_ALIGN);
}

static inline int64_t nf4_bytes(int64_t n, enum nf4_scales s)
{
    return nf4_scale_bytes(n, s) + round_up(ceil_div(n, 2), NF4_ALIGN);
}

/* The parts of a packed matrix, whose memory is aligned to 4 bytes. */
struct nf4_parts {
    float *map;
    float *scale;                /* plain scales; NULL: nested ones */
    float *mean, *nested, *most; /* nested scales; NULL: plain ones */
    uint8_t *scale_code;
    uint8_t *code;
};
struct nf4_parts nf4_parts(void *packed, int64_t n, enum nf4_scales s);

/* Quantises n finite numbers of a matrix, which begin at the beginning of a block; the matrix's last block may be shorter. */
void nf4_quantise(const float *x, int64_t n, float *scale /* [blocks] */, uint8_t *code /* [ceil(n / 2)] */);
/* Packs the scales of a matrix of n numbers. */
void nf4_pack_scales(const float *scale /* [blocks] */, int64_t n, enum nf4_scales s, void *packed);

/* Returns the scale of one block from the packed scales. */
static inline float nf4_scale(const void *scales, int64_t n, enum nf4_scales s, int64_t block)
{
    const float *f = (const float *)scales + NF4_VALUES;
    if (s == NF4_PLAIN)
        return f[block];
    const uint8_t *code = (const uint8_t *)((const float *)scales + nf4_scale_floats(n, s));
    const float product = f[1 + code[block]] * f[1 + NF4_NESTED_VALUES + block / NF4_NESTED_BLOCK];
    return product + f[0];
}

/* Dequantises numbers [first, first + count) of a packed matrix of n numbers. */
void nf4_dequantise(const void *packed, int64_t n, enum nf4_scales s, int64_t first, int64_t count, float *out);

/* Returns the code of number i. */
static inline int nf4_code(const uint8_t *code, int64_t i)
{
    return i % 2 ? code[i / 2] & 15 : code[i / 2] >> 4;
}

#endif
