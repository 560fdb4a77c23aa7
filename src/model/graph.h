/* Parts of building a graph that a part of a model shares. Private to model. */
#ifndef LTRAIN_MODEL_GRAPH_H
#define LTRAIN_MODEL_GRAPH_H

#include "model/model.h"

/* Allocates a model of `layers` layers and `units` units, without parameters; all else is zero. */
enum status graph_allocate(const struct model_config *config, int64_t layers, int units, struct model **out);
/* Orders each unit's parameters, and sets their offsets and the units' sizes. */
void graph_order(struct model *m);
/* Adds up the model's numbers of parameters. */
void graph_sum(struct model *m);

#endif
