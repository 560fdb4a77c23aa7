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
/* The same gradient, which dx becomes. */
void lower_norm_gradient(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, struct value *dy,
                         int c);
/* Heads [first, first + n) of a layer's, of dim elements each; n 0: all of them together, as one row. */
struct heads {
    int64_t first, n, dim;
};
/* Of each of a row's heads, or of a whole row: y = norm(x), rows [y0, y0 + rows) from x0 on; dx, in storage type,
 * becomes the gradient of rows x0 on of x, given dy in fp32 from dy0 on, and the norm's weight gradients are added to. */
void lower_head_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, int64_t y0, struct value *x,
                             int64_t x0, int64_t rows, struct heads heads);
void lower_head_norm_backward(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, int64_t x0,
                              struct value *dy, int64_t dy0, int64_t rows, struct heads heads);
/* Of row chunk c: y = x + the model's residual scale (delta (+ the bias of w)); delta in fp32; w may be NULL. */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c);
/* How heads are rotated: with the model's rope-th set of frequencies (-1: not at all); queries may be scaled by their positions;
 * inverse: the backward direction. */
struct rotation {
    int rope;
    int64_t heads;
    enum dtype type;
    int queries, inverse;
};
/* x *= the constant, in place: row chunk c, in storage type. */
void lower_multiply(struct lowering *L, struct value *x, int constant, int c);
/* Rotates rows [r0, r1), those of tokens p0 on, in place. */
void lower_rope(struct lowering *L, const struct rotation *how, struct value *x, int64_t r0, int64_t r1, int64_t p0);

/* Rows from `row` on, and columns from `first` on, of a value of that type. */
struct columns {
    struct value *value;
    int64_t row, first;
    enum dtype type;
};
/* y = x for cols columns of each of the rows; keep: the other columns of y stay. */
void lower_columns(struct lowering *L, const struct columns *y, const struct columns *x, int64_t rows, int64_t cols, int keep);
/* Of row chunk c: y = scale x, in storage type. */
void lower_scale(struct lowering *L, struct value *y, struct value *x, double scale, int c);
/* y = x, element by element: rows, or both whole. */
void lower_cast_rows(struct lowering *L, struct value *y, int64_t y0, enum dtype y_type, struct value *x, int64_t x0,
                     enum dtype x_type, int64_t rows);
void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type);

#endif
