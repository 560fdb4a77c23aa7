/* All steps of a ring for one tile of attention. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_RING_H
#define LTRAIN_PLAN_LOWER_BLOCKS_RING_H

#include "plan/lower/blocks/attend.h"

void ring_forward(struct lowering *L, const struct forward_tile *f);
void ring_backward(struct lowering *L, const struct backward_tile *b);
/* Creates the values that the layers of a shape share. */
void ring_values_create(struct lowering *L, struct attention_work *W);

#endif
