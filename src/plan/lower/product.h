/* Products of linear maps as instructions; every matrix product of the model is emitted here. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_PRODUCT_H
#define LTRAIN_PLAN_LOWER_PRODUCT_H

#include "plan/lower/lowering.h"

/* Rows of a value from `row` on, all on the device. */
struct linear_side {
    struct value *value;
    int64_t row;
    enum dtype type;
    int64_t ld;    /* elements from row to row; 0: as many as the map has */
    int64_t first; /* column of the rows at which the map's outputs or inputs begin; not for dW */
};

/* A map, or inputs [first_in, first_in + in) of it, applied to `rows` rows. */
struct linear_call {
    const struct model_linear *w;
    int64_t first_in, in; /* in 0: all inputs */
    int64_t rows;
    struct linear_side y; /* the outputs, or their gradient */
    struct linear_side x; /* the inputs, or their gradient */
    int accumulate;       /* 1: the result is added to the destination */
    float scale;          /* factor of the product; 0: 1 */
    int apart;            /* 1: this slice of outputs has inputs of its own, whose gradient has no share of other slices */
};

/* Computes y[rows, out] (+)= x[rows, in] W^T. */
void linear_product(struct lowering *L, const struct linear_call *c);
/* Computes x[rows, in] (+)= y[rows, out] W, x and y being gradients. */
void linear_product_dx(struct lowering *L, const struct linear_call *c);
/* Computes dW (+)= y^T x, y being a gradient; nothing if the weight is frozen. The first use in a program writes. */
void linear_product_dw(struct lowering *L, const struct linear_call *c);

/* Adds the bias to y, or the column sums of dy to the bias's gradient. Nothing without a (trained) bias. */
void lower_bias(struct lowering *L, const struct model_linear *w, struct value *y, int64_t r0, int64_t r1);
void lower_bias_grad(struct lowering *L, const struct model_linear *w, struct value *dy, enum dtype dy_type, int64_t r0,
                     int64_t r1);
/* Adds a bias, or makes its gradient, for rows that lie y->ld elements apart and may be of another type. */
void lower_bias_of(struct lowering *L, const struct model_linear *w, const struct linear_side *y, int64_t rows);
void lower_bias_grad_of(struct lowering *L, const struct model_linear *w, const struct linear_side *dy, int64_t rows);
/* Appends the part of a map's bias that belongs to its outputs (w may be a slice). */
void arg_bias(struct lowering *L, int arg, const struct model_linear *w);

/* Tells whether the loss op writes the logits' gradient in bf16. If it did not, each product on a GPU would round that gradient
 * again. */
int lower_rounds_dlogits(const struct lowering *L);

/* Returns the part of a linear map that makes its outputs [first, first + out). */
struct model_linear linear_outputs(const struct model_linear *w, int64_t first, int64_t out);

/* Returns the first element of the stored matrix that the map reads, with inputs from first_in on. */
int64_t linear_begins(const struct model_linear *w, int64_t first_in);

#endif
