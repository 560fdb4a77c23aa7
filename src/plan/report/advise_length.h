/* Search for the longest sequence that fits, as an advice. Private to advise*.c. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H
#define LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H

#include "plan/report/advise_proposals.h"
#include "plan/search/search.h"

/* Estimates the need of the settings. If a length has more bytes than programs have room for, the need of its longest part that
 * fits into a program is multiplied. */
enum status advise_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Finds about the longest sequence that fits: its neighbourhood by estimate, and from there on by trials. excess: need of the
 * settings' length, as a share of the available memory. Fills *tokens; 0: there is none. Else it fills *t with the settings of
 * that length, and *fits with its smallest placement. */
enum status advise_shorter(struct advisor *x, double excess, struct proposal_setup *t, struct candidate *fits, int64_t *tokens);

#endif
