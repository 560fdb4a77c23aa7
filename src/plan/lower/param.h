/* A parameter as an argument, and its gradient. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_PARAM_H
#define LTRAIN_PLAN_LOWER_PARAM_H

#include "plan/lower/lowering.h"

const struct model_param *param_of(const struct lowering *L, int param);
int trained(const struct lowering *L, int param); /* 0 for param -1 (none) */

/* Appends a whole parameter as an argument. */
void arg_param(struct lowering *L, int arg, int param);
void arg_param_part(struct lowering *L, int arg, int param, int64_t first, int64_t n); /* elements [first, first + n) only */
/* Appends elements [first, first + n) of a parameter's gradient, to be written at first use in a program and added to later.
 * Returns the op's accumulate flag. */
int arg_grad(struct lowering *L, int arg, int param, int64_t first, int64_t n);
/* Zeroes the gradient unless the program has written it before: for ops that add to parts of it. */
void zero_gradient(struct lowering *L, int param);

#endif
