/* The layers of a model as instructions. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_LAYERS_H
#define LTRAIN_PLAN_LOWER_LAYERS_H

#include "plan/lower/lowering.h"

void lower_forward(struct lowering *L);
void lower_backward(struct lowering *L);
void lower_value_produce(struct lowering *L, struct value *v, int tile);

/* Whether the backward pass finds a layer's input where the forward pass left it. The last layer's always is: its backward pass
 * follows at once. */
int lower_keeps_input(const struct lowering *L, int l);

#endif
