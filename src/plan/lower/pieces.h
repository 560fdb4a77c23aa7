/* Pieces of blocks beside linear maps, as instructions. Private to src/plan/lower.
 *
 * Rows [r0, r1) are tokens; everything is on the device. Activations are in storage type unless an argument gives another one. */
#ifndef LTRAIN_PLAN_LOWER_PIECES_H
#define LTRAIN_PLAN_LOWER_PIECES_H

#include "plan/lower/lowering.h"

/* Computes y = norm(x) of row chunk c. lower_norm_backward: adds the gradient of the norm's input to L->dx, given dy in fp32, and
 * makes the gradients of the norm's weights. */
void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c);
void lower_norm_backward(struct lowering *L, const struct model_norm *n, struct value *x, struct value *dy, int c);
/* Sets rows [r0, r1) of a value to zero. */
void lower_clear(struct lowering *L, struct value *v, int64_t r0, int64_t r1);
/* Computes the same gradients, but writes that of the input to dx. */
void lower_norm_gradient(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, struct value *dy,
                         int c);
/* Heads [first, first + n) of a layer's heads, of dim elements each; n 0: all of them together, as one row. */
struct heads {
    int64_t first, n, dim;
};
/* Computes rows [y0, y0 + rows) of y = norm(x), from row x0 of x on; each of a row's heads, or the whole row, is normalised by
 * itself. The backward function writes dx, in storage type: the gradient of rows x0 on of x, given dy in fp32 from dy0 on. It
 * adds to the gradients of the norm's weights. */
void lower_head_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, int64_t y0, struct value *x,
                             int64_t x0, int64_t rows, struct heads heads);
void lower_head_norm_backward(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, int64_t x0,
                              struct value *dy, int64_t dy0, int64_t rows, struct heads heads);
/* Computes y = x + scale (delta (+ the bias of w)) for row chunk c, with the model's residual scale. delta is in fp32; w may be
 * NULL. */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c);
/* A rotation of heads (rope). rope: index of the model's set of frequencies; -1: no rotation. queries: 1 for queries, which may
 * be scaled by position. inverse: the backward direction. */
struct rotation {
    int rope;
    int64_t heads;
    enum dtype type;
    int queries, inverse;
    int64_t head_dim, first; /* elements of a head, and the first of the rotated ones; 0: a head is as wide as the set says */
};
/* Multiplies row chunk c of x, in storage type, by the parameter `constant` in place. */
void lower_multiply(struct lowering *L, struct value *x, int constant, int c);
/* Rotates rows [r0, r1) in place, for tokens from p0 on. */
void lower_rope(struct lowering *L, const struct rotation *how, struct value *x, int64_t r0, int64_t r1, int64_t p0);

/* Rows from `row` on, and columns from `first` on, of a value whose elements have the given type. */
struct columns {
    struct value *value;
    int64_t row, first;
    enum dtype type;
};
/* Copies cols columns of each row from x to y. keep: the other columns of y stay. */
void lower_columns(struct lowering *L, const struct columns *y, const struct columns *x, int64_t rows, int64_t cols, int keep);
/* Computes y = scale x for row chunk c, in storage type. */
void lower_scale(struct lowering *L, struct value *y, struct value *x, double scale, int c);
/* Converts x to y element by element: all rows, or (lower_cast_rows) some. */
void lower_cast_rows(struct lowering *L, struct value *y, int64_t y0, enum dtype y_type, struct value *x, int64_t x0,
                     enum dtype x_type, int64_t rows);
void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type);

#endif
