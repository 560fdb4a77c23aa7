/* Balancing of experts without a loss (DeepSeek-V3): the bias that chooses is moved between steps. Private to src/train. */
#ifndef LTRAIN_TRAIN_ROUTER_BIAS_H
#define LTRAIN_TRAIN_ROUTER_BIAS_H

#include "engine/session.h"

/* Moves every bias by `rate` up where its expert had fewer tokens than the mean of the layer's, down where it had more:
 * counts[layers with experts][experts], equal on all ranks. No program may run. */
enum status router_bias_move(struct session *s, double rate, const double *counts);

/* Tells whether the model's experts are chosen with such a bias. */
int router_bias_exists(const struct model *m);

#endif
