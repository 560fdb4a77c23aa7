/* Fetching parameters, the optimizer update, and what happens to a finished gradient. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_UPDATE_H
#define LTRAIN_PLAN_LOWER_UPDATE_H

#include "plan/lower/lowering.h"

/* Brings a unit's parameters to the device, after its pending update if the role has one. */
void unit_fetch(struct lowering *L, int unit);
/* End of a visit: forgets the device's copies of parameters unless they live there. */
void unit_drop(struct lowering *L, int unit);
/* The pending update of a unit. */
void unit_update(struct lowering *L, int unit);
/* Before the first op that writes gradients of a unit, and after the last one. */
void grads_begin(struct lowering *L, int unit);
void grads_finish(struct lowering *L, int unit);
/* The norm of the gradient of all units, to the host. */
void lower_norm(struct lowering *L);
/* Every rank's partial losses to the host. */
void lower_loss_sum(struct lowering *L);

#endif
