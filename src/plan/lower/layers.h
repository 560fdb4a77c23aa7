/* The layers of a model as instructions. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_LAYERS_H
#define LTRAIN_PLAN_LOWER_LAYERS_H

#include "plan/lower/lowering.h"

/* The layers' blocks, without values. */
void layers_create(struct lowering *L);
/* A unit_cuts (state.h), for which layers_create is enough. */
int layers_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);
/* The values of layers and of the loss. Digests of programs hold the order in which values are created. */
void layers_values(struct lowering *L);

void lower_forward(struct lowering *L);
void lower_backward(struct lowering *L);

#endif
