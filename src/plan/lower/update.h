/* Fetching parameters, the optimizer update, and what happens to a finished gradient. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_UPDATE_H
#define LTRAIN_PLAN_LOWER_UPDATE_H

#include "plan/lower/lowering.h"

void unit_fetch(struct lowering *L, int unit); /* parameters to the device, after the pending update if the role has one */
void unit_drop(struct lowering *L, int unit);
void unit_update(struct lowering *L, int unit);
void grads_begin(struct lowering *L, int unit);
void grads_finish(struct lowering *L, int unit);
void lower_norm(struct lowering *L);
void lower_loss_sum(struct lowering *L); /* every rank's partial losses to the host */

#endif
