/* Gated units of experts: y = p f(gate) up for each pair's row, with the gates of swiglu.h, or y = p f(gate) of GATE_ALONE. The pair's weight p stands inside, so
 * that the second map's result needs none and the backward pass does without that result. */
#ifndef LTRAIN_OPS_GATED_H
#define LTRAIN_OPS_GATED_H

#include "base/status.h"
#include "ops/swiglu.h"

struct gated_shape {
    int64_t rows, dim, width; /* rows: tokens, each with k pairs; width: of the second map's outputs */
    int32_t k, experts, dtype;
    int32_t padded;      /* 1: a pair whose place is negative is none */
    int32_t interleaved; /* 1: columns of gate and up alternate; 0: gate comes first */
    struct gate f;
};

/* Pairs of tokens. */
struct gated_pairs {
    const float *p;       /* [rows,k] */
    const int32_t *place; /* [rows,k] */
    /* for the gradient, if the second map has a bias; else NULL: dy [rows,width], bias [experts,width] of T, ids [rows,k] */
    const void *dy, *bias;
    const int32_t *ids;
};

/* Computes act. ERR_CORRUPT, here and below: a row or an expert that does not exist. */
enum status ops_gated(const struct gated_shape *s, void *act /* T[n,dim] */,
                      const void *gate_up /* T[n,2 dim]; of GATE_ALONE T[n,dim] */, const struct gated_pairs *x);
/* Computes in place: gate_up becomes its gradient, g, the gradient of act, becomes act, with the bits of ops_gated. */
enum status ops_gated_grad(const struct gated_shape *s, void *gate_up, void *g, float *dp /* [n] */, const struct gated_pairs *x);

#endif
