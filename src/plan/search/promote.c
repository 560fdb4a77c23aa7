/* Classes in two tiers: where a placement leaves memory, some layers have one of its classes nearer. */
#include "plan/search/promote.h"

#include "base/hurry.h"
#include "plan/search/decisions.h"
#include "plan/search/retry.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMOTED_CLASSES = CLASS_ACT + 1 };

/* A placement that was tried, and the numbers of layers that may have a class nearer. `least` layers fit beside the trial's
 * memory, which includes data fetched ahead.
 *
 * `most` layers fit beside the least need; where trials are cheap one layer more, since estimates are not that exact. */
struct span {
    struct candidate far;
    enum tensor_class class;
    enum residency at;
    int64_t least, most;
    /* estimated and expected seconds with the first number of layers to be tried or (where trials are cheap) with the largest */
    double estimate, expected;
};

static struct candidate at(const struct trials *t, const struct span *s, int64_t layers)
{
    struct candidate c = s->far;
    c.strategy.placement.promoted_class = s->class;
    c.strategy.placement.promote_tier = s->at;
    c.strategy.placement.promoted_layers = (int)layers;
    estimator_judge(t->search->estimator, &c);
    return c;
}

/* Returns the first number of layers to try: those that surely fit. More layers nearer are faster, until too little memory is
 * left to fetch ahead. */
static int64_t first_number(const struct span *s)
{
    return s->least > 0 ? s->least : (s->most + 1) / 2;
}

/* Finds the numbers of layers that may have the class in tier `near`. Returns 0 if there are none. */
static int find_span(const struct trials *t, const struct candidate *tried, enum tensor_class class, enum residency near,
                     struct span *out)
{
    *out = (struct span){.far = *tried, .class = class, .at = near};
    if (!options_may_promote(estimator_options(t->search->estimator), &tried->strategy, class, near))
        return 0;
    out->far.strategy.placement.promoted_class = class;
    int64_t layers = strategy_promotable_layers(&out->far.strategy, t->problem->model->config.layers);
    struct candidate none = at(t, out, 0), all = at(t, out, layers);
    out->least = out->most = layers;
    for (int i = 0; i < TIERS; i++) {
        double more = (double)(all.bytes[i] - none.bytes[i]) / (double)layers;
        if (more > 0) {
            out->least = min_i64(out->least, (int64_t)((double)(t->problem->limit[i] - tried->bytes[i]) / more));
            double most = (double)(t->problem->limit[i] - min_i64(tried->bytes[i], none.bytes[i])) / more;
            out->most = min_i64(out->most, (int64_t)(t->search->all_layers ? ceil(most) : most));
        }
    }
    out->most = max_i64(out->least, out->most);
    out->estimate = out->expected = INFINITY;
    for (int last = 0; last <= t->search->all_layers; last++) {
        struct candidate c = at(t, out, last ? out->most : first_number(out));
        double stalls = (tried->seconds - tried->estimate) * c.traffic / fmax(tried->traffic, 1e-9);
        out->estimate = fmin(out->estimate, c.estimate);
        out->expected = fmin(out->expected, c.estimate + stalls);
    }
    return out->most > 0;
}

static int was_divided(const struct search *x, const struct span *s)
{
    struct candidate c;
    for (int i = 0; i < x->n_tried; i++) {
        c = x->candidates[i];
        if (c.strategy.placement.promoted_layers == 0 || c.strategy.placement.promoted_class != s->class ||
            c.strategy.placement.promote_tier != s->at ||
            c.strategy.placement.kept_chunks != s->far.strategy.placement.kept_chunks)
            continue;
        c.strategy.placement.promoted_layers = 0;
        if (decisions_same_classes(&c.strategy, &s->far.strategy))
            return 1;
    }
    return 0;
}

/* Finds the span that is expected to be the fastest, with numbers still to be tried and seconds below `best`; where trials are
 * cheap, an estimate below `best` is enough. Returns 0 if there is none. */
static int find_fastest(const struct trials *t, const struct search *x, double best, struct span *out)
{
    out->expected = INFINITY;
    for (int i = 0; i < x->n_tried; i++)
        for (int k = 0; k < RES_NVME * PROMOTED_CLASSES; k++) {
            struct span s = {0};
            if (x->candidates[i].excess <= 1 && x->candidates[i].strategy.placement.promoted_layers == 0 &&
                find_span(t, &x->candidates[i], (enum tensor_class)(k / RES_NVME), (enum residency)(k % RES_NVME), &s) &&
                (x->all_layers ? s.estimate : s.expected) < TRIAL_BELOW * best && s.expected < out->expected &&
                !was_divided(x, &s))
                *out = s;
        }
    return isfinite(out->expected);
}

/* Bisects for the largest number of layers for which more layers were always faster than fewer. Where trials are cheap the
 * largest number is tried, too, as a single layer may gain nothing though two do. */
static enum status narrow(const struct trials *t, struct search *x, struct span *s, double *spent)
{
    double best = s->far.seconds;
    int64_t n = first_number(s), low = 0, high = s->most;
    for (int i = 0; i < PROMOTE_TRIES && low < high; i++) {
        struct candidate c = at(t, s, n);
        c.strategy.placement.write_depth = 0;
        c.retried = 0;
        *spent += trial_instrs(t, &c);
        TRY(retry_yielding(t, &c, best));
        memmove(&x->candidates[x->n_tried + 1], &x->candidates[x->n_tried], (size_t)(x->n - x->n_tried) * sizeof c);
        x->candidates[x->n_tried++] = c;
        x->n++;
        if (c.excess <= 1 && c.seconds < best) {
            best = c.seconds;
            low = n;
        } else {
            high = min_i64(high, n - 1);
        }
        n = i == 0 && x->all_layers ? s->most : (low + high + 1) / 2;
    }
    return OK;
}

static double fastest(const struct search *x)
{
    double least = INFINITY;
    for (int i = 0; i < x->n_tried; i++)
        if (x->candidates[i].excess <= 1)
            least = fmin(least, x->candidates[i].seconds);
    return least;
}

enum status search_promote(const struct trials *t, struct search *x)
{
    struct span s = {0};
    double spent = 0;
    if (x->candidates[0].excess > 1 || x->candidates[0].seconds < PROMOTE_WAITS * x->candidates[0].compute)
        return OK;
    for (int i = 0;
         i < PROMOTE_MOST / PROMOTE_TRIES && spent < SEARCH_INSTRS && !hurry_asked() && find_fastest(t, x, fastest(x), &s); i++)
        TRY(narrow(t, x, &s, &spent));
    qsort(x->candidates, (size_t)x->n_tried, sizeof *x->candidates, candidate_order);
    return OK;
}
