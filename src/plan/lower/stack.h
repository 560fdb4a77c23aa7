/* Stacks of experts' matrices as arguments of products. Private to src/plan/lower.
 *
 * A quantised stack is dequantised right before each product, for that product alone, some experts at a time. An expert's rows are a
 * product of its own, so that parts change no sum. */
#ifndef LTRAIN_PLAN_LOWER_STACK_H
#define LTRAIN_PLAN_LOWER_STACK_H

#include "plan/lower/lowering.h"

/* Experts [first, first + count) of a stack. */
struct stack_part {
    int64_t first, count;
};

/* Returns the most elements of a quantised stack that are dequantised at a time, in whole experts. */
int64_t stack_dequantised(const struct model_param *p);

/* Returns the experts of the first product with a stack (stack_next: of the product after `part`); count 0: there is no such product. */
struct stack_part stack_first(const struct lowering *L, int param);
struct stack_part stack_next(const struct lowering *L, int param, const struct stack_part *part);
/* Dequantises the matrices of a part, unless the stack is stored as numbers. */
void stack_prepare(struct lowering *L, int param, const struct stack_part *part);
/* Sets the product's experts, and appends their matrices, which stack_prepare has prepared. w: the map, or its transpose. */
void arg_stack(struct lowering *L, struct op_attrs *a, int arg, const struct model_linear *w, const struct stack_part *part);

#endif
