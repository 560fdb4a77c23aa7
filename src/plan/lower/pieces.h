/* The pieces that layers are made of, as instructions. Private to src/plan.
 *
 * Rows [r0, r1) are tokens; everything is on the device. Types: activations in storage dtype unless a dtype argument says
 * otherwise. */
#ifndef LTRAIN_PLAN_LOWER_PIECES_H
#define LTRAIN_PLAN_LOWER_PIECES_H

#include "plan/lower/lowering.h"

/* The query projection of ulysses member m's tile t; the key or value projection w of its KV tile kt. */
struct model_linear q_slice(const struct lowering *L, int layer, int m, int t);
struct model_linear kv_slice(const struct lowering *L, const struct model_linear *w, int m, int kt);

/* Of row chunk c: y = norm(x); dx += gradient of the norm's input, given dy in fp32, and the norm's weight gradients. */
void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c);
void lower_norm_backward(struct lowering *L, const struct model_norm *n, struct value *x, struct value *dy, int c);
/* Of row chunk c: y = x + delta (+ the bias of w); delta in fp32. */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c);
/* Rotates rows [r0, r1), those of tokens p0 on, in place; nothing for models with learned positions. inverse: the backward
 * direction. */
void lower_rope(struct lowering *L, struct value *x, int64_t r0, int64_t r1, int64_t p0, int heads, enum dtype type, int inverse);

/* Of row chunk c of layer l: act = SwiGLU(gate, up) or GELU(up); and backward, in place: gate and up become their gradients, and
 * dact, the activation's, becomes the activation. */
void lower_activation(struct lowering *L, int l, int c);
void lower_activation_backward(struct lowering *L, int l, int c);

/* Element offsets at which gradients of the unit are written piecewise, appended to cuts (room for max). */
int lower_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);

/* Heads and KV heads (of the model) that ulysses member m attends in its tile t, kt. */
int64_t routed_head(const struct lowering *L, int m, int t);
int64_t routed_kv_head(const struct lowering *L, int m, int kt);
/* Whether member m's KV tiles are the same heads as those of the member before it. */
int kv_replica(const struct lowering *L, int m);
/* dq on its way to the tokens and at home. */
enum dtype dq_type(const struct lowering *L);

/* y = x, element by element, both whole. */
void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type);

#endif
