/* What a single placement takes. */
#ifndef LTRAIN_PLAN_SEARCH_PRICE_H
#define LTRAIN_PLAN_SEARCH_PRICE_H

#include "plan/search/candidate.h"
#include "plan/search/problem.h"

/* Tried and retried as in a search; out->bytes: what its first program needs. */
enum status search_price(const struct problem *p, const struct strategy *strategy, struct candidate *out);

/* Tried once, with its own depth of drive writes. */
enum status search_price_as_is(const struct problem *p, const struct strategy *strategy, struct candidate *out);

/* Tried in the serial order: whether it fits. */
enum status search_fits(const struct problem *p, const struct strategy *strategy, struct candidate *out);

#endif
