/* Linear maps as instructions, with their adapters where they have some. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_LINEAR_H
#define LTRAIN_PLAN_LOWER_LINEAR_H

#include "plan/lower/product.h"

/* Computes y[rows, out] (+)= x[rows, in] W^T by linear_product (product.h), and adds the adapter's share (adapter.h). The two
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

#endif
