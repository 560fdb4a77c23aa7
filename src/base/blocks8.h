/* Numbers of 8 bits in blocks of 256: block-wise dynamic quantisation (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
 * Quantization"), with bitsandbytes' 256 values.
 *
 * n numbers, packed: a scale in fp32 for each block, then a byte for each number, then padding. A number is map[code] * scale. The
 * scale is the block's element of largest magnitude, with its sign (the positive one of two), so that this element is 1, which the
 * map has, and what was packed packs again to the same bytes.
 *
 * Two kinds: signed numbers; and squares, of which the roots are packed, unsigned. Roots span half as many orders of
 * magnitude as their squares, which is what second moments need: a root that is not 0 never becomes 0, so that nothing is divided by
 * a root that has vanished beside a first moment that has not. */
#ifndef LTRAIN_BASE_BLOCKS8_H
#define LTRAIN_BASE_BLOCKS8_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/num.h"

enum { BLOCK8 = 256, BLOCK8_VALUES = 256 };

enum blocks8_kind { BLOCKS8_SIGNED, BLOCKS8_SQUARES };

/* Returns the bytes of n packed numbers. */
static inline int64_t blocks8_bytes(int64_t n)
{
    return round_up(ceil_div(n, BLOCK8) * 4 + n, 64);
}

static inline uint8_t *blocks8_codes(const void *packed, int64_t n)
{
    return (uint8_t *)packed + ceil_div(n, BLOCK8) * 4;
}

/* Returns the 256 values of a kind, ascending. */
const float *blocks8_map(enum blocks8_kind kind);

/* Unpacks one block of n <= BLOCK8 numbers. */
void blocks8_unpack_block(enum blocks8_kind kind, float scale, const uint8_t *code, int n, float *out);
/* Packs one block of n <= BLOCK8 numbers and returns its scale. random: 16 bits for each number, by which a number between two
 * values is rounded up with a probability in proportion to its distance from the lower one; NULL: to the nearest value, the lower
 * of two equally near. x (for squares: the squares themselves) is overwritten. */
float blocks8_pack_block(enum blocks8_kind kind, float *x, int n, const uint16_t *random, uint8_t *code);

/* Unpacks and packs n numbers, to the nearest value. */
void blocks8_unpack(enum blocks8_kind kind, const void *packed, int64_t n, float *out);
void blocks8_pack(enum blocks8_kind kind, const float *x, int64_t n, void *packed);

#ifdef __cplusplus
}
#endif
#endif
