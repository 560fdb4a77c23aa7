/* Rotary position embedding (Su et al. 2021), pairs (j, j + head_dim / 2) as in Hugging Face's Llama.
 *
 * angle = positions[i] * inv_freq[j], taken in fp64 and reduced there, so that positions in the millions lose nothing; sine and
 * cosine are fp32 (absolute error below 1.2e-7) and are computed once per row for all heads. */
#ifndef LTRAIN_OPS_ROPE_H
#define LTRAIN_OPS_ROPE_H

#include <stdint.h>

/* Rotates in place by angle, or by -angle (`inverse`: the backward pass). */
void ops_rope(void *x /* type[rows, heads, head_dim] inout */, const int32_t *positions /* [rows] */,
              const float *inv_freq /* [head_dim / 2] */, int64_t rows, int64_t heads, int64_t head_dim, int32_t type,
              int32_t inverse);

#endif
