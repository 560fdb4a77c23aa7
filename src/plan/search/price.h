/* The price of a single placement. */
#ifndef LTRAIN_PLAN_SEARCH_PRICE_H
#define LTRAIN_PLAN_SEARCH_PRICE_H

#include "plan/search/candidate.h"
#include "plan/search/problem.h"

/* Tries and retries a placement as a search does; out->bytes: the need of its first program. */
enum status search_price(const struct problem *p, const struct strategy *strategy, struct candidate *out);

/* Tries a placement once, with its own depth of drive writes. */
enum status search_price_as_is(const struct problem *p, const struct strategy *strategy, struct candidate *out);

/* Finds whether a placement fits (out->excess <= 1), by a trial without prefetches or overlap, which takes the least memory. */
enum status search_fits(const struct problem *p, const struct strategy *strategy, struct candidate *out);

#endif
