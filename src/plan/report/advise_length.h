/* The longest sequence that fits, as an advice. Private to advise*.c. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H
#define LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H

#include "plan/report/advise_proposals.h"
#include "plan/search/search.h"

/* What the settings need by estimate. A length whose programs have no room for its bytes needs a multiple of what the longest
 * part of it needs that they have room for. */
enum status advise_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Finds about the longest sequence that fits: its neighbourhood by estimate, from where trials go on. excess: what the length of
 * the settings needs, as a share of what there is. Fills *tokens, 0 if there is none; else *t with its settings, and *fits with
 * its smallest placement. */
enum status advise_shorter(struct advisor *x, double excess, struct proposal_setup *t, struct candidate *fits, int64_t *tokens);

#endif
