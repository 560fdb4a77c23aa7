/* Gates of attention: what heads give times the sigmoid of a map of the block's input, before it is mapped back. A tile's gate is
 * the tokens' own, like o: routed, and on no way to other members. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_GATES_H
#define LTRAIN_PLAN_LOWER_BLOCKS_GATES_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* The layer's gates, computed by `produce`; what the layers of a shape share, nothing where none of them has gates. */
void gates_of_layer(struct lowering *L, struct block *b, value_produce *produce);
void gates_of_work(struct lowering *L, struct attention_work *W, int shape);
/* Whether the block has gates. */
int has_gates(const struct block *b);
/* W->gated of chunk c: tile i of o, which is on the device, times its gate. */
void gate_forward(struct lowering *L, const struct block *b, int t, int i);
/* W->gated holds its gradient. The gradients of o and of the gate are written, and W->gated is what gate_forward made. */
void gate_backward(struct lowering *L, const struct block *b, int t, int i);
/* End of a visit of chunk c: what computing gates read. */
void gates_leave_input(struct lowering *L, const struct block *b, int c);

#endif
