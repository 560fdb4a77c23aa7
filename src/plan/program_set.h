/* The program set of one placement. Private to src/plan. */
#ifndef LTRAIN_PLAN_PROGRAM_SET_H
#define LTRAIN_PLAN_PROGRAM_SET_H

#include "plan/plan.h"
#include "plan/search/candidate.h"

/* Plans all programs of the set, packed with some slack (pack.h), until some do not fit (*out's fits). *excess: the largest share
 * of a tier's limit that they need. The caller destroys *out. */
enum status plan_candidate(const struct problem *p, const struct candidate *c, double slack, double *excess, struct plan **out);

/* Describes the whole plan as a candidate. Its step on slow links is simulated, since trials of fewer layers have a smaller
 * backlog of transfers. `written`: seconds of drive writes of the plan's step program. */
enum status plan_as_candidate(const struct plan *plan, struct candidate *out);
/* Sets the plan's arenas and peaks: the bytes of its programs in each tier. */
void plan_account(struct plan *plan);

#endif
