/* Plans that send less, if slow links would hold the step up. Private to src/plan. */
#ifndef LTRAIN_PLAN_SLOW_LINKS_H
#define LTRAIN_PLAN_SLOW_LINKS_H

#include "plan/plan.h"
#include "plan/search/problem.h"

/* Replaces *out by a plan that sends less, if slow links would hold its step up; it may cost SLOW_LINKS_GIVE of the step at most.
 * One more of SLOW_LINKS_CHUNKS row chunks stays on the device, or is computed again, or chunks are half as long. */
enum status plan_for_slow_links(const struct problem *p, struct plan **out);

#endif
