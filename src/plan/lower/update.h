/* Fetching parameters, the optimizer update, and the steps after a finished gradient. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_UPDATE_H
#define LTRAIN_PLAN_LOWER_UPDATE_H

#include "plan/lower/lowering.h"

/* Brings a unit's parameters to the device, after its pending update if the program has one. */
void unit_fetch(struct lowering *L, int unit);
/* Ends a visit: forgets the device's copies of parameters whose home is elsewhere. */
void unit_drop(struct lowering *L, int unit);
/* Emits the pending update of a unit. */
void unit_update(struct lowering *L, int unit);
/* Prepares a unit's gradients before the first op that writes them; grads_finish: sums and stores them after the last one. */
void grads_begin(struct lowering *L, int unit);
void grads_finish(struct lowering *L, int unit);
/* Gathers all elements [g.first, g.end) of `whole` from every member's tile of `shard`, on the device. depth: 1 if the gather may
 * run ahead of its use. */
void gather_group(struct lowering *L, struct value *whole, struct value *shard, struct group g, int depth);
/* Computes the norm of the gradient of all units and sends it to the host. */
void lower_norm(struct lowering *L);
/* Sends every rank's partial losses to the host. */
void lower_loss_sum(struct lowering *L);

#endif
