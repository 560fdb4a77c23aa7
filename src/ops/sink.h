/* Attention sinks: a learned logit per head that takes part in the softmax and has no value (gpt-oss).
 *
 * Attention over all keys comes first, in as many parts as there are; the sink is merged into the result once. Layouts: o [rows,
 * heads, head_dim]; delta [rows, heads]; lse [heads, rows], -inf where no key was attended (o is 0 there); sinks [heads]. */
#ifndef LTRAIN_OPS_SINK_H
#define LTRAIN_OPS_SINK_H

#include <stdint.h>

struct sink_shape {
    int64_t rows, heads, head_dim;
    int32_t dtype; /* type of sinks */
};

/* Merges the sink, per row and head: lse' = log(exp(lse) + exp(sink)), o' = exp(lse - lse') o. */
void ops_attn_sink(const struct sink_shape *s, float *o, float *lse, const void *sinks /* T */);

/* Computes dsink -= sum over rows of exp(sink - lse) delta, rows in order, in fp64. lse and delta = rowsum(do * o) are those of
 * attention with the sink. The sink's value is 0, so the gradient of its logit is its weight times -delta. */
void ops_attn_sink_grad(const struct sink_shape *s, float *dsinks, const void *sinks /* T */, const float *lse,
                        const float *delta);

#endif
