/* Sizes of update groups, if the default ones cost time. Private to src/plan. */
#ifndef LTRAIN_PLAN_UPDATE_GROUPS_H
#define LTRAIN_PLAN_UPDATE_GROUPS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Replaces *out by a plan with groups of GROUP_RESIDENT elements if a single GPU holds all parameters, gradients and optimizer
 * state. Small groups gain nothing there. The new plan must fit and save GROUP_GAIN of the step in instructions' fixed costs. */
enum status plan_for_resident_groups(const struct problem *p, struct plan **out);
/* Replaces *out by a plan with larger groups if messages between ranks are short of time: fewer messages wait for each other's
 * latency. The new plan must fit and save GROUP_GAIN of the step. */
enum status plan_for_messages(const struct problem *p, struct plan **out);

#endif
