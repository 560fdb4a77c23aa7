/* Layers of stages that are not equally fast. Private to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_ISLAND_LAYERS_H
#define LTRAIN_PLAN_SEARCH_ISLAND_LAYERS_H

#include "plan/search/problem.h"

/* Divides layers among stages so that the slowest one is as fast as can be. each: seconds of a layer on each stage; ends: seconds of the
 * model's ends there. Every stage gets a layer. */
void stages_share_layers(int stages, const double *each, const double *ends, int64_t layers, struct mesh_stages *out);

/* Divides a model's layers among the stages of the request's mesh on the islands of its machine, by closed-form seconds of compute in which
 * all layers count alike. m: the whole model. out->n = 0: evenly. */
enum status island_layers(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                          struct mesh_stages *out);

#endif
