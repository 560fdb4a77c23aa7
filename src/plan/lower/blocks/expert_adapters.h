/* Adapters of stacks of experts: y += s B (A x) for each pair's row, A and B being those of the pair's expert.
 *
 * A x and s B^T dy have as many columns as the adapter's rank. They are fp32 transients of the chunk at work. Private to
 * src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_ADAPTERS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_ADAPTERS_H

#include "plan/lower/blocks/block.h"

/* Transients that all layers share: A x, B^T dy, s A x and s B^T dy. */
struct stack_work {
    struct value down, scaled_down, up, scaled_up;
};

/* The adapter of a stack at a chunk, whose pairs are sorted. w->rank 0: there is none, and the functions below do nothing. */
struct stack_adapter {
    const struct block *block;
    const struct model_linear *w;
    struct stack_work *work;
    struct value *order, *offsets;
    int chunk;
};

/* Creates the transients, if some stack has an adapter. */
void stack_adapter_values(struct lowering *L, struct stack_work *W);
/* Computes y += s B (A x). gathered: 1: x has a row for each token, else one for each pair. */
void stack_adapter_forward(struct lowering *L, const struct stack_adapter *a, struct value *y, struct value *x, int gathered);
/* Makes s B^T dy, which the two functions below read. gathered: 1: dy has a row for each token. */
void stack_adapter_begin(struct lowering *L, const struct stack_adapter *a, struct value *dy, int gathered);
/* Adds (s B^T dy) A to dx, which has a row for each pair. */
void stack_adapter_dx(struct lowering *L, const struct stack_adapter *a, struct value *dx);
/* Computes the gradients of A and B. gathers: side that has a row for each token. */
void stack_adapter_dw(struct lowering *L, const struct stack_adapter *a, struct value *dy, struct value *x,
                      enum experts_gather gathers);
/* Ends the chunk's visit of the backward pass. */
void stack_adapter_end(struct lowering *L, const struct stack_adapter *a);

#endif
