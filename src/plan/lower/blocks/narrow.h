/* Experts that read and give rows narrower than the stream. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_NARROW_H
#define LTRAIN_PLAN_LOWER_BLOCKS_NARROW_H

#include "plan/lower/blocks/experts.h"

static inline int narrow_is(const struct block *b)
{
    return experts_weights(b)->descend.weight >= 0;
}
/* Creates the values that all layers share. */
void narrow_values(struct lowering *L);

/* Returns the rows that experts read: the norm's output, or that of the map before them. */
struct value *experts_input(const struct lowering *L, const struct block *b);
/* Makes these rows, unless they are there. */
void experts_make_input(struct lowering *L, const struct block *b, int c);

/* Makes the sum of what a token's experts give, v, of the fp32 sum. */
void narrow_keep_sum(struct lowering *L, struct value *v, int c);
/* Computes b->acc (+)= what the map behind the sum gives. */
void narrow_branch(struct lowering *L, const struct block *b, int c, int accumulate);
/* Computes the gradients of the map behind the sum, whose output has gradient df. Returns the gradient of the sum. */
struct value *narrow_begin_gradient(struct lowering *L, const struct block *b, struct value *df, int c);
/* Computes the gradients of the map before the experts, from the gradient of its output in the fp32 sum, and b->acc (+)= that of its
 * input. */
void narrow_end_gradient(struct lowering *L, const struct block *b, int c, int accumulate);

#endif
