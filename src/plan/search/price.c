/* The price of a single placement. */
#include "plan/search/price.h"

#include "plan/search/select.h"

#include <math.h>

typedef enum status try_candidates(const struct problem *p, struct search *x);

/* Tries one placement. Light and other layers keep the mean number of chunks, unless the request gives a number for each kind. */
static enum status try_one(const struct problem *p, const struct strategy *strategy, try_candidates *try, struct candidate *out)
{
    struct options o;
    struct strategy alike = *strategy, fixed;
    alike.placement.full_more = alike.placement.light_fewer = 0;
    fixed = alike;
    struct search x = {.candidates = out, .n = 1, .beat = INFINITY};
    fixed.placement.device_layers = fixed.placement.device_chunks = fixed.placement.promoted_layers = 0;
    options_of_one(&alike, &o);
    TRY(estimator_create(p, &o, &fixed, &x.estimator));
    x.all_layers = search_is_small(x.estimator);
    *out = (struct candidate){.strategy = alike};
    enum status st = alike.placement.device_chunks > 0 ? estimator_split(x.estimator) : OK;
    estimator_judge(x.estimator, out);
    if (st == OK)
        st = try(p, &x);
    estimator_destroy(x.estimator);
    return st;
}

enum status search_price(const struct problem *p, const struct strategy *strategy, struct candidate *out)
{
    return try_one(p, strategy, select_fastest, out);
}

enum status search_price_as_is(const struct problem *p, const struct strategy *strategy, struct candidate *out)
{
    return try_one(p, strategy, select_first, out);
}

enum status search_fits(const struct problem *p, const struct strategy *strategy, struct candidate *out)
{
    return try_one(p, strategy, select_smallest, out);
}
