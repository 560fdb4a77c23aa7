/* Linear maps as instructions, with their adapters where they have some: y += s B (A x). Private to src/plan/lower.
 *
 * A x and s B^T dy have as many columns as the adapter's rank. They are transients of the row chunk at work: made when they are first
 * needed, made again in the backward pass, and never kept. A map may be applied slice by slice. Slices of outputs share A x, and
 * their parts of s B^T dy are added up; slices of inputs share s B^T dy, and their parts of A x are added up. So the slices of a chunk
 * come in one visit: first the one that begins at 0, last the one that ends where the map does.
 *
 * With dropout A x is A of what the mask leaves of x, which is a transient, too: made for the product, forward and backward. The
 * gradient that A gives passes the same mask before it is added to x's. */
#ifndef LTRAIN_PLAN_LOWER_LINEAR_H
#define LTRAIN_PLAN_LOWER_LINEAR_H

#include "plan/lower/product.h"

/* Computes y[rows, out] (+)= x[rows, in] W^T by linear_product (product.h), and adds the adapter's share. The two
 * functions below do the same for gradients. */
void lower_linear(struct lowering *L, const struct linear_call *c);
/* Computes x[rows, in] (+)= y[rows, out] W, x and y being gradients. */
void lower_linear_dx(struct lowering *L, const struct linear_call *c);
/* Computes dW (+)= y^T x, y being a gradient; nothing if the weight is frozen. The first use in a program writes. */
void lower_linear_dw(struct lowering *L, const struct linear_call *c);

/* Appends the element offsets in its unit at which the gradient of a map is written. `parts` equal slices of its outputs, or of
 * its inputs, are written one by one. cuts has room for max. Returns their number. */
enum linear_slices { OF_OUTPUTS, OF_INPUTS };
int linear_cuts(const struct lowering *L, const struct model_linear *w, int parts, enum linear_slices slices, int64_t *cuts,
                int n, int max);

/* Tells whether A sees its inputs through a mask (ops/dropout.h): only in programs with a backward pass. */
int adapter_drops(const struct lowering *L);
/* Creates the transients, if the model has adapters. */
void adapter_values(struct lowering *L);
/* Adds scale s B A[tokens] to chunk c of x, or makes the gradients of A and B from L->dx; nothing unless the embedding has an
 * adapter. */
void adapter_embed(struct lowering *L, struct value *x, int c, float scale);
void adapter_embed_backward(struct lowering *L, int c, float scale);

#endif
