/* Gates of attention: heads' outputs times the sigmoid of a map of the block's input, before they are mapped back. Like o, a
 * tile's gate is routed and belongs to the rank's tokens, but it is never sent to other members. Private to
 * src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_GATES_H
#define LTRAIN_PLAN_LOWER_BLOCKS_GATES_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* Creates the layer's gates, computed by `produce`. gates_of_work: the values that the layers of a shape share, if some of them
 * has gates. */
void gates_of_layer(struct lowering *L, struct block *b, value_produce *produce);
void gates_of_work(struct lowering *L, struct attention_work *W, int shape);
int has_gates(const struct block *b);
/* Computes W->gated of chunk c: tile i of o, which is on the device, times its gate. */
void gate_forward(struct lowering *L, const struct block *b, int t, int i);
/* Reads the gradient of W->gated from W->gated itself; writes the gradients of o and of the gate, and W->gated as gate_forward
 * made it. */
void gate_backward(struct lowering *L, const struct block *b, int t, int i);
/* Ends a visit of chunk c: drops the inputs that gates were computed from. */
void gates_leave_input(struct lowering *L, const struct block *b, int c);

#endif
