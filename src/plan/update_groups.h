/* Sizes of the groups that state is updated and sent in, where the default ones cost time. Private to src/plan. */
#ifndef LTRAIN_PLAN_UPDATE_GROUPS_H
#define LTRAIN_PLAN_UPDATE_GROUPS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Replaces *out by a plan with groups of GROUP_RESIDENT elements where all state of a single GPU stays on it, so that groups serve nothing,
 * if that saves GROUP_GAIN of the step in instructions' fixed parts, and fits. */
enum status plan_for_resident_groups(const struct problem *p, struct plan **out);
/* Replaces *out by a plan with larger groups where messages between ranks are short of time: fewer of them wait for each other's latency.
 * Only if that fits and saves GROUP_GAIN of the step. */
enum status plan_for_messages(const struct problem *p, struct plan **out);

#endif
