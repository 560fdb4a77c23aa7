/* Rotary position embedding (Su et al. 2021), pairs (j, j + head_dim / 2) as in Hugging Face's Llama.
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

/* Rotates in place by angle, or by -angle (`inverse`: the backward pass). */
void ops_rope(void *x /* type[rows, heads, head_dim] inout */, const int32_t *positions /* [rows] */,
              const float *inv_freq /* [head_dim / 2] */, int64_t rows, int64_t heads, int64_t head_dim, int32_t type,
              int32_t inverse);

#endif
