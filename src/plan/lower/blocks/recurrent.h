/* Values of recurrences, and what stands between heads' outputs and the map back. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H
#define LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H

#include "plan/lower/blocks/block.h"

/* Values of one layer. ab: the maps to decays and to strengths side by side. Tile i of `state` and `tail` follows chunk i;
 * where a text is read on, their only tile has a home and follows the text so far. */
struct recurrent_layer {
    struct value pre, z, ab, state, tail;
};

/* Values that the layers share. half: one of the maps in ab; qkv: the convolution's output; o: heads' outputs; n: outputs of norms; y:
 * of gates; dn, dout: gradients of n in fp32, and of o; dstate, dtail: gradients of what follows a chunk, or room for what follows a text
 * that is read on. */
struct recurrent_work {
    struct value half, qkv, g, beta, o, n, y, dn, dout, dstate, dtail;
};

static inline struct recurrent_work *recurrent_work(const struct lowering *L)
{
    return L->shared[BLOCK_RECURRENT];
}

static inline const struct recurrent_block *recurrent_of(const struct block *b)
{
    return &b->weights->recurrent;
}

/* Returns the columns of all heads' outputs. */
static inline int64_t recurrent_values(const struct recurrent_block *r)
{
    return r->heads * r->value_dim;
}

/* Computes the norms of heads' outputs of chunk c, where norms come before gates. */
void recurrent_norm(struct lowering *L, const struct block *b, int c);
/* Computes the branch of chunk c from gates, heads' outputs and, where they come first, norms that are on the device. */
void recurrent_branch(struct lowering *L, const struct block *b, int c);
/* Makes the gradient of heads' outputs from that of the branch, df, and returns it; z becomes its own gradient. */
struct value *recurrent_gates_backward(struct lowering *L, const struct block *b, struct value *df, int c);

#endif
