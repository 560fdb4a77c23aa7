/* What a single placement takes. */
#include "plan/search/price.h"

#include "plan/search/select.h"

#include <math.h>

typedef enum status try_candidates(const struct problem *p, struct search *x);

static enum status try_one(const struct problem *p, const struct strategy *strategy, try_candidates *try, struct candidate *out)
{
    int n = strategy->device_layers, chunks = strategy->device_chunks,
        two = n + chunks > 0; /* what stays on the device is reckoned from the activations there */
    struct options o = {.params = {strategy->params},
                        .grads = {strategy->grads},
                        .optim = {strategy->optim},
                        .acts = {two ? RES_DEVICE : strategy->acts, strategy->acts},
                        .passing = {two ? RES_DEVICE : strategy->passing, strategy->passing},
                        .n_params = 1,
                        .n_grads = 1,
                        .n_optim = 1,
                        .n_acts = 1 + two,
                        .update = {strategy->update_on_host},
                        .n_update = 1,
                        .device_layers = {n},
                        .n_device_layers = 1,
                        .kept = {strategy->kept_chunks},
                        .n_kept = chunks > 0 && strategy->kept_chunks > 0 ? 2 : 1}; /* which chunks are kept matters then */
    struct strategy fixed = *strategy;
    struct search x = {.candidates = out, .n = 1, .beat = INFINITY};
    fixed.device_layers = fixed.device_chunks = fixed.nearer = 0;
    if (strategy->nearer > 0)
        options_open_nearer(&o, strategy->nearer_class, strategy->nearer_at);
    TRY(estimator_create(p, &o, &fixed, &x.estimator));
    x.whole = search_is_small(x.estimator);
    *out = (struct candidate){.strategy = *strategy};
    enum status st = chunks > 0 ? estimator_split(x.estimator) : OK;
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
    return try_one(p, strategy, select_leanest, out);
}
