/* How many row chunks layers of each kind save. Private to src/plan. */
#ifndef LTRAIN_PLAN_LAYER_KINDS_H
#define LTRAIN_PLAN_LAYER_KINDS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Of a model whose layers attend under two masks: a plan whose kinds of layers save different numbers of row chunks takes the
 * place of *out, if that is faster. The search's trials know one kind of layer (problem_shortened), so all programs here are of the
 * model as it is. */
enum status plan_for_layer_kinds(const struct problem *p, struct plan **out);

#endif
