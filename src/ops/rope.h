/* Rotary position embedding (Su et al. 2021) of the first `rotated` elements of each head: pairs (j, j + rotated / 2) as in Hugging
 * Face's Llama, or neighbours (2 j, 2 j + 1).
 *
 * angle = positions[i] * inv_freq[j], taken in fp64 and reduced there, so that positions in the millions lose nothing; sine and
 * cosine are fp32 (absolute error below 1.2e-7) and are computed once per row for all heads.
 *
 * inv_freq is fp32, as transformers holds it. Rounded, a frequency is another one, off by up to 6e-8 of it (an angle of 0.03 at 1M
 * tokens), and the rotation between two tokens still depends on nothing but their distance, which fp64 would not make truer to
 * weights that were trained with fp32 frequencies or will run with them. transformers multiplies in fp32, too: its angles are off
 * by another 0.03 at 1M tokens, differently at every position. That is not copied: it depends on the device's arithmetic. */
#ifndef LTRAIN_OPS_ROPE_H
#define LTRAIN_OPS_ROPE_H

#include <stdint.h>

struct rope_shape {
    int64_t rows, heads, head_dim, rotated;
    int32_t type, inverse, interleaved;
    float factor;   /* of what is rotated, in both directions */
    float slope;    /* 0, or the factor at a position is factor (1 + slope log(1 + position / period)), the quotient rounded down:
                     * Llama 4's scale of queries, which Ministral 3 has, too */
    int32_t period;
};

/* Rotates in place by angle, or by -angle (`inverse`: the backward pass). */
void ops_rope(const struct rope_shape *s, void *x /* type[rows, heads, head_dim] inout */, const int32_t *positions /* [rows] */,
              const float *inv_freq /* [rotated / 2] */);

#endif
