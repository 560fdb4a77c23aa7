/* The linear maps around attention: q, k, v and o, chunk by chunk, for the heads of every ulysses member. Private to
 * src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_PROJECTIONS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_PROJECTIONS_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

int projections_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max);

/* Tiles of q, k, v and gates, and of the block's output, which all heads add to. */
value_produce produce_q, produce_k, produce_v, produce_gate, produce_attended;

/* Where a block's gradient is not the stream's: makes chunk c of it. */
void attended_gradient(struct lowering *L, const struct block *b, int c);
/* End of a visit of chunk c of q, k and v: drops what norms of all heads together left. */
void drop_all_heads(struct lowering *L, const struct block *b, int c);
/* do and delta of chunk c for tile t, and what the output projection's weights learn from it. */
void output_backward(struct lowering *L, const struct block *b, int t, int c);
/* From dq, dk and dv of all tiles to the gradient of the block's input, chunk c. */
void qkv_backward(struct lowering *L, const struct block *b, int c);

#endif
