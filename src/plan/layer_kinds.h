/* How many row chunks layers of each kind save. Private to src/plan. */
#ifndef LTRAIN_PLAN_LAYER_KINDS_H
#define LTRAIN_PLAN_LAYER_KINDS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Of a model whose layers attend under two masks: a plan whose kinds of layers save different numbers of row chunks takes the
 * place of *out, if that is faster. The search gives both kinds the same number, and its trials of a few layers know one kind
 * (problem_shortened); here all programs are of the model as it is. */
enum status plan_for_layer_kinds(const struct problem *p, struct plan **out);

#endif
