/* Blocks whose branch depends on each token's row alone: an MLP, experts. Their output and their gradients are made chunk by chunk.
 *
 * A joined block shares the norm, the sum and the gradient of the block before it: both add to L->acc, first the one before or, between
 * slices, the one that is cut: blocks by rows add to the sum over slices. The last of such blocks computes the output of all. Joined blocks with inner norms each have a norm of the stream, too, and their
 * normalised branches are added up. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_ROWS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_ROWS_H

#include "plan/lower/blocks/block.h"

/* Functions of one chunk of such a block; everything is on the device. */
struct row_block {
    /* Gets the values that the branch is computed from. After it, the norm may be dropped. */
    void (*fetch)(struct lowering *L, const struct block *b, int c);
    /* Computes b->acc (+)= the branch without the bias of `last`. */
    void (*branch)(struct lowering *L, const struct block *b, int c, int accumulate);
    /* Computes the gradients of the block's parameters from df, the branch's gradient in storage type. Computes b->acc (+)= the
     * gradient of the norm's output. */
    void (*gradient)(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate);
    /* Drops the block's values at the end of a visit. */
    void (*drop)(struct lowering *L, const struct block *b, int c);
    /* Returns the map whose bias the branch still lacks; NULL: none. */
    const struct model_linear *(*last)(const struct block *b);
};

/* Computes a chunk of the output of v->block and of those that it is joined to. */
value_produce rows_output;
/* Computes the gradients of b and of those that it is joined to, as `backward` of struct block_lowering. */
void rows_backward(struct lowering *L, struct block *b);

/* Creates the values of joined blocks with inner norms, if there are such blocks. */
void rows_values(struct lowering *L);
/* Makes room for b->acc, unless it is added to. */
void rows_begin(struct lowering *L, const struct block *b, int c, int accumulate);

#endif
