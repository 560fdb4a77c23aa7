/* The longest sequence that fits. */
#ifndef LTRAIN_PLAN_MAX_SEQ_H
#define LTRAIN_PLAN_MAX_SEQ_H

#include "plan/plan.h"

/* Finds the longest sequence for which some placement within the request fits the budgets, between lengths that do and do not,
 * and plans it. Sets s->seq_len and the mesh (plan_mesh, for `ranks` ranks). Lengths are multiples of a 64th of the power of two
 * below them, and of 1024, tokens. (*out)->longest has the need of the next one. If the shortest does not fit, *out is its plan,
 * with fits = 0. m: for any length; the plan is of model_create_for(m, s->seq_len). */
enum status plan_longest(const struct model *m, struct plan_request *s, int ranks, int per_host, const int64_t limit[TIERS],
                         struct plan **out);

/* Returns the distance from a length to the next one that is tried. */
int64_t length_step(int64_t tokens);

#endif
