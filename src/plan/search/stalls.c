/* Stalls that trials show, and the seconds expected of other placements. */
#include "plan/search/stalls.h"

#include "plan/search/decisions.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Returns the i-th trial: the first `tried` of x, then those of x->known; NULL: there are no more. */
static const struct candidate *trial_at(const struct search *x, int tried, int i)
{
    if (i < tried)
        return &x->candidates[i];
    return x->known && i - tried < x->known->n_tried ? &x->known->candidates[i - tried] : NULL;
}

/* Returns the seconds of stalls for each second of traffic. */
static double stalls_shown(const struct candidate *tried)
{
    return fmax(0, tried->seconds - tried->estimate) / fmax(tried->traffic, 1e-9);
}

double stalls_expect(const struct search *x, int tried, const struct candidate *c)
{
    const struct candidate *t;
    /* the least rate shown counts, as another placement may have its traffic at better moments; rates of c's family are preferred */
    double most = 0, rate = INFINITY, own = INFINITY;
    for (int i = 0; (t = trial_at(x, tried, i)); i++)
        if (t->excess <= 1)
            most = fmax(most, t->traffic);
    for (int i = 0; (t = trial_at(x, tried, i)); i++) {
        double shown = stalls_shown(t);
        if (t->excess > 1 || STALLS_REACH * t->traffic < fmin(c->traffic, most))
            continue;
        rate = fmin(rate, shown);
        if (decisions_same_family(&t->strategy, &c->strategy))
            own = fmin(own, shown);
    }
    rate = isfinite(own) ? own : rate;
    return c->estimate + (isfinite(rate) ? rate * c->traffic : 0);
}

double stalls_untried_family(const struct search *x, int tried, const struct candidate *c)
{
    const struct candidate *t;
    for (int i = 0; (t = trial_at(x, tried, i)); i++)
        if (t->excess <= 1 && decisions_same_family(&t->strategy, &c->strategy))
            return INFINITY;
    return c->estimate;
}

double stalls_scaled(const struct candidate *tried, const struct candidate *c)
{
    double times = c->traffic / fmax(tried->traffic, 1e-9);
    return fmax(0, candidate_price(tried) - tried->estimate) * times * fmin(1, times);
}

double stalls_of(const struct search *x, const struct candidate *c, resemblance *like)
{
    double least = INFINITY;
    for (int i = 0; i < x->n_tried; i++) {
        const struct candidate *t = &x->candidates[i];
        if (t->excess <= 1 && STALLS_REACH * t->traffic >= c->traffic && like(&t->strategy, &c->strategy))
            least = fmin(least, stalls_scaled(t, c));
    }
    return least;
}
