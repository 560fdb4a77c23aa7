/* Search for the longest sequence that fits, as an advice. Private to advise*.c. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H
#define LTRAIN_PLAN_REPORT_ADVISE_LENGTH_H

#include "plan/report/advise_proposals.h"
#include "plan/search/search.h"

/* Estimates the need of the settings. If the length exceeds a program's tables, the need is extrapolated in proportion from the
 * longest fraction of the length for which a program can be made. */
enum status advise_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out);

/* Finds about the longest sequence that fits, first by estimate, then nearby by trials. Fills *tokens (0: none fits), *t with the
 * settings of that length, and *fits with its smallest placement. excess: the need of the settings' length, divided by the
 * available memory. */
enum status advise_shorter(struct advisor *x, double excess, struct proposal_setup *t, struct candidate *fits, int64_t *tokens);

#endif
