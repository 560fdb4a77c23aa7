/* Attention's work per row and head: delta of the backward pass, the merge of attention over two disjoint sets of keys, and heads that
 * share a part.
 *
 * Layouts: o, do [rows, heads, head_dim]; delta [rows, heads]; lse [heads, rows], -inf where no key was attended (o is 0 there). */
#ifndef LTRAIN_OPS_HEADS_H
#define LTRAIN_OPS_HEADS_H

#include <stdint.h>

struct heads_shape {
    int64_t rows, heads, head_dim;
    int32_t dtype; /* type T of o and do for delta */
};

/* Computes delta = sum over head_dim of do * o, in fp32 with 16 partial sums. */
void ops_attn_delta(const struct heads_shape *s, float *delta, const void *o /* T */, const void *d_o /* T */);

/* Merges a part into o and lse, per row and head (the rescaling of FlashAttention, Dao 2022):
 *
 * lse' = log(exp(lse) + exp(lse_part)), o' = exp(lse - lse') o + exp(lse_part - lse') o_part.
 *
 * A part without keys leaves o and lse exactly as they are; an o without keys becomes the part exactly. A NaN in either lse stays
 * visible. */
void ops_attn_merge(const struct heads_shape *s, float *o, float *lse, const float *o_part, const float *lse_part);

#endif
