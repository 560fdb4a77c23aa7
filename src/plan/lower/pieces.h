/* The pieces that blocks are made of beside linear maps, as instructions. Private to src/plan/lower.
 *
 * Rows [r0, r1) are tokens; everything is on the device. Types: activations in storage dtype unless a dtype argument says
 * otherwise. */
#ifndef LTRAIN_PLAN_LOWER_PIECES_H
#define LTRAIN_PLAN_LOWER_PIECES_H

#include "plan/lower/lowering.h"

/* Of row chunk c: y = norm(x); dx += gradient of the norm's input, given dy in fp32, and the norm's weight gradients. */
void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c);
void lower_norm_backward(struct lowering *L, const struct model_norm *n, struct value *x, struct value *dy, int c);
/* Of row chunk c: y = x + delta (+ the bias of w); delta in fp32. */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c);
/* Rotates rows [r0, r1), those of tokens p0 on, in place; nothing for models with learned positions. inverse: the backward
 * direction. */
void lower_rope(struct lowering *L, struct value *x, int64_t r0, int64_t r1, int64_t p0, int heads, enum dtype type, int inverse);

/* y = x, element by element, both whole. */
void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type);

#endif
