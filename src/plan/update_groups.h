/* How many elements are updated at once where nothing of them moves. Private to src/plan. */
#ifndef LTRAIN_PLAN_UPDATE_GROUPS_H
#define LTRAIN_PLAN_UPDATE_GROUPS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* A single GPU's parameters, gradients and optimizer state, where they stay on it, are cut into groups for nothing: a plan with
 * groups of GROUP_RESIDENT elements takes the place of *out where that saves GROUP_GAIN of the step in instructions' fixed parts,
 * and fits. */
enum status plan_for_resident_groups(const struct problem *p, struct plan **out);

#endif
