/* Messages between members of a ring, and sums of what they bring. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_RING_PARTS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_RING_PARTS_H

#include "plan/lower/lowering.h"

/* Rows of a value: `rows` from `row` on, in one buffer. */
struct ring_rows {
    struct value *value;
    int64_t row, rows;
};

/* Sends `from` to the member `distance` ahead and receives `to`, whole tiles, from the member `distance` behind. depth 1: the exchange may
 * run ahead of its use. */
void ring_exchange(struct lowering *L, struct ring_rows from, struct ring_rows to, int distance, int send_if, int recv_if,
                   int depth);
/* Adds part to sum, both fp32, and drops the part's tile. */
void ring_add(struct lowering *L, struct ring_rows sum, struct ring_rows part, int predicate);
/* Returns all rows of a value. */
struct ring_rows ring_all(struct value *v);

#endif
