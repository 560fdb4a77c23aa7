/* What a single placement takes. */
#ifndef LTRAIN_PLAN_SEARCH_PRICE_H
#define LTRAIN_PLAN_SEARCH_PRICE_H

#include "machine/cost.h"
#include "plan/search/candidate.h"

/* Tried and retried as in a search; out->bytes: what its first program needs. */
enum status search_price(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* Tried once, with its own depth of drive writes. */
enum status search_price_as_is(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                               const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* Tried in the serial order: whether it fits. */
enum status search_fits(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                        const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

#endif
