/* Number of row chunks that layers of each kind save. Private to src/plan. */
#ifndef LTRAIN_PLAN_LAYER_KINDS_H
#define LTRAIN_PLAN_LAYER_KINDS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Replaces *out by a plan whose kinds of layers save different numbers of row chunks, if that is faster. It applies to models
 * whose layers attend under two masks. The search gives both kinds the same number, and its trials of a few layers know one kind
 * (problem_shortened); here all programs have all layers. */
enum status plan_for_layer_kinds(const struct problem *p, struct plan **out);

#endif
