/* The layers of a model as instructions. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_LAYERS_H
#define LTRAIN_PLAN_LOWER_LAYERS_H

#include "plan/lower/lowering.h"

/* Creates the layers' blocks, without values. */
void layers_create(struct lowering *L);
/* Appends cuts of gradients like a unit_cuts function (state.h); needs layers_create only. */
int layers_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max);
/* Creates the values of layers and of the loss. Their order must not change: digests of programs depend on it. */
void layers_values(struct lowering *L);

/* Creates the persistent values in which sampling caches what the blocks need of earlier tokens. */
void layers_cache_create(struct lowering *L);
/* Binds the contents of the caches' homes at the start (end = 0) or the end (1) of the program. */
void layers_cache_bind(struct lowering *L, int end);

void lower_forward(struct lowering *L);
void lower_backward(struct lowering *L);

#endif
