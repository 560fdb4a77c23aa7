/* Adapters: y += s B (A x) beside the products of a linear map. Private to src/plan/lower.
 *
 * A x and s B^T dy have as many columns as the adapter's rank. They are transients of the row chunk at work: made when they are first
 * needed, made again in the backward pass, and never kept. A map may be applied slice by slice. Slices of outputs share A x, and
 * their parts of s B^T dy are added up; slices of inputs share s B^T dy, and their parts of A x are added up. So the slices of a chunk
 * come in one visit: first the one that begins at 0, last the one that ends where the map does.
 *
 * With dropout A x is A of what the mask leaves of x, which is a transient, too: made for the product, forward and backward. The
 * gradient that A gives passes the same mask before it is added to x's. */
#ifndef LTRAIN_PLAN_LOWER_ADAPTER_H
#define LTRAIN_PLAN_LOWER_ADAPTER_H

#include "plan/lower/product.h"

/* Tells whether A sees its inputs through a mask (ops/dropout.h): only in programs with a backward pass. */
int adapter_drops(const struct lowering *L);
/* Creates the transients, if the model has adapters. */
void adapter_values(struct lowering *L);
/* Emits the adapter's share of a map's outputs, or of the gradient of its inputs, after the map's own product; nothing without an
 * adapter. */
void adapter_forward(struct lowering *L, const struct linear_call *c);
void adapter_dx(struct lowering *L, const struct linear_call *c);
/* Emits the gradients of A and B. */
void adapter_dw(struct lowering *L, const struct linear_call *c);
/* Adds scale s B A[tokens] to chunk c of x, or makes the gradients of A and B from L->dx; nothing unless the embedding has an
 * adapter. */
void adapter_embed(struct lowering *L, struct value *x, int c, float scale);
void adapter_embed_backward(struct lowering *L, int c, float scale);

#endif
