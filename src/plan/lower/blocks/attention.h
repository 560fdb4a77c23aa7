/* What the tiles of attention (attention.c) and the steps of a ring (ring.c) share. Private to src/plan. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_ATTENTION_H
#define LTRAIN_PLAN_LOWER_BLOCKS_ATTENTION_H

#include "plan/lower/lowering.h"

/* All attention tiles of a layer. */
void lower_attention_forward(struct lowering *L, int layer);
void lower_attention_backward(struct lowering *L, int layer);
void attention_values_create(struct lowering *L);

/* What the backward pass of one tile reads and writes, in the heads layout. */
struct backward_tile {
    struct value *q, *k, *v, *d_o, *delta, *lse, *dq, *dk, *dv;
};

/* The kernel calls of ring step s, in the heads layout; 0 is the rank's own block. accumulate: dk and dv are added to. */
void emit_attention_forward(struct lowering *L, int s, struct value *o, struct value *lse, struct value *q, struct value *k,
                            struct value *v);
void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate);

/* The predicate of what belongs to step s: does this rank attend the keys of the member s before it? */
int ring_attends(int s);
/* Puts the last instruction under a predicate (0: none). */
void under_predicate(struct lowering *L, int predicate);

/* All steps of one tile. */
void ring_forward(struct lowering *L, struct value *o, struct value *lse, struct value *q, struct value *k, struct value *v);
void ring_backward(struct lowering *L, const struct backward_tile *b);

/* A value of a rank's share of the heads, one row for each token whose attention it computes. */
void heads_value(struct lowering *L, struct value *v, const char *name, int64_t row_bytes);
void ring_values_create(struct lowering *L);

#endif
