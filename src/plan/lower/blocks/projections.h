/* The linear maps around attention: q, k, v and o, chunk by chunk, for the heads of every ulysses member. Private to
 * src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_PROJECTIONS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_PROJECTIONS_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

int projections_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max);

/* Compute tiles of q, k, v and gates, and of the block's output, which all heads add to. */
value_produce produce_q, produce_k, produce_v, produce_gate, produce_attended;

/* Makes chunk c of the gradient of the block's branch, unless the stream's gradient serves. */
void attended_gradient(struct lowering *L, const struct block *b, int c);
/* Makes chunk c of this gradient with all rows, which all tiles read, and the gradient of the output's bias; only between slices. */
void share_gradient(struct lowering *L, const struct block *b, int c);
/* Drops all heads of chunk c that were normalised together, at the end of a visit of q, k and v. */
void drop_all_heads(struct lowering *L, const struct block *b, int c);
/* Makes do and delta of chunk c for tile t, and the gradient of the output projection's weights. */
void output_backward(struct lowering *L, const struct block *b, int t, int c);
/* Computes the gradient of the block's input, chunk c, from dq, dk and dv of all tiles. */
void qkv_backward(struct lowering *L, const struct block *b, int c);

#endif
