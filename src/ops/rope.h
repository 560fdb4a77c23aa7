/* Rotary position embedding (Su et al. 2021) of `rotated` elements of each head, from element `first` on. Pairs are (j, j + rotated / 2) of
 * them, as in Hugging Face's Llama, or neighbours (2 j, 2 j + 1).
 *
 * angle = positions[i] * inv_freq[j], computed and reduced in fp64, so that positions in the millions lose nothing. Sine and
 * cosine are fp32 (absolute error below 1.2e-7), computed once per row for all heads.
 *
 * inv_freq is fp32, as transformers holds it. Rounding moves a frequency by up to 6e-8 of it (an angle of 0.03 at 1M tokens). The
 * rotation between two tokens still depends only on their distance, and weights trained or run with fp32 frequencies would gain
 * nothing from fp64 ones. transformers also multiplies in fp32: its angles are off by another 0.03 at 1M tokens, differently at
 * every position. That error is not copied: it depends on the device's arithmetic. */
#ifndef LTRAIN_OPS_ROPE_H
#define LTRAIN_OPS_ROPE_H

#include <stdint.h>

struct rope_shape {
    int64_t rows, heads, head_dim, rotated, first;
    int32_t type, inverse, interleaved;
    float factor; /* factor of the rotated elements, in both directions */
    float slope;  /* 0, or the factor at a position is factor (1 + slope log(1 + position / period)), the quotient rounded down:
                     * the query scale of Llama 4 and Ministral 3 */
    int32_t period;
};

/* Rotates in place by angle, or by -angle (`inverse`: the backward pass). */
void ops_rope(const struct rope_shape *s, void *x /* type[rows, heads, head_dim] inout */, const int32_t *positions /* [rows] */,
              const float *inv_freq /* [rotated / 2] */);

#endif
