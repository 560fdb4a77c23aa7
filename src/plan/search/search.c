/* Searches on one grid: lists, tries and refines placements. */
#include "plan/search/search.h"

#include "base/hurry.h"
#include "plan/search/decisions.h"
#include "plan/search/price.h"
#include "plan/search/promote.h"
#include "plan/search/refine.h"
#include "plan/search/select.h"
#include "plan/search/split.h"
#include "plan/search/stalls.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the seconds that `next` is expected to take after c was tried, with stalls as trials have shown. */
static double expected_after(const struct search *x, const struct candidate *c, const struct candidate *next)
{
    double rate = (c->seconds - c->estimate) / fmax(c->traffic, 1e-9);
    return x->known ? stalls_expect(x, 0, next) : next->estimate + rate * next->traffic;
}

/* Tells whether a placement that ought to fit is expected to gain enough. For a small gain, quarters of the chunks are too
 * coarse: the placement then keeps as many chunks as fit. */
static int is_promising(const struct search *x, const struct candidate *c, double gain)
{
    double enough = (1 - gain) * c->seconds;
    for (int i = 0; i < x->n; i++) {
        struct candidate next = x->candidates[i];
        if (next.excess > 1)
            continue;
        if (expected_after(x, c, &next) < enough)
            return 1;
        if (gain < SEARCH_GAIN)
            search_keep_most(x, options_most_kept(estimator_options(x->estimator)), &next);
        if (expected_after(x, c, &next) < enough)
            return 1;
    }
    return 0;
}

static void move_to_front(struct search *x, const struct candidate *c)
{
    int at = 0;
    while (at < x->n && (x->candidates[at].strategy.placement.kept_chunks != c->strategy.placement.kept_chunks ||
                         !decisions_same_classes(&x->candidates[at].strategy, &c->strategy)))
        at++;
    if (at == x->n)
        x->n++;
    memmove(&x->candidates[1], &x->candidates[0], (size_t)at * sizeof *c);
    x->candidates[0] = *c;
    x->given = 1;
}

/* Puts a placement that was already tried on this grid first among the candidates. */
static enum status put_found(struct search *x, const struct candidate *found)
{
    struct candidate c = {.strategy = found->strategy, .first_level = found->first_level};
    if (c.strategy.placement.device_chunks > 0)
        TRY(estimator_split(x->estimator));
    estimator_judge(x->estimator, &c);
    move_to_front(x, &c);
    return OK;
}

/* Puts another grid's placement first among the candidates, if it ought to fit: with an equal share of chunks kept or, if memory
 * seems to have limited it, with as many as fit. */
static enum status put_first(struct search *x, const struct strategy *fixed, const struct candidate *other)
{
    const struct options *o = estimator_options(x->estimator);
    const struct strategy *like = &other->strategy;
    struct candidate c = {.strategy = *fixed};
    int share = strategy_share(fixed, like);
    strategy_place(&c.strategy, like);
    c.strategy.placement.keep_inputs = fixed->placement.keep_inputs;
    c.strategy.placement.kept_chunks = options_fewest_kept(o);
    if (c.strategy.placement.device_chunks > 0)
        TRY(estimator_split(x->estimator));
    estimator_judge(x->estimator, &c);
    if (c.excess > 1)
        return OK;
    search_keep_most(x, other->excess > MEMORY_FULL ? options_most_kept(o) : share, &c);
    move_to_front(x, &c);
    return OK;
}

/* Searches placements that are not listed: classes in two tiers, other numbers of chunks, split activations. */
static enum status search_around(const struct trials *t, struct search *x)
{
    TRY(search_promote(t, x));
    TRY(search_refine(t, x));
    return search_split(t, x);
}

/* Lists, tries and refines placements with the layer inputs of the fixed strategy. */
static enum status search_inputs(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, int brief,
                                 struct search *out)
{
    const struct candidate *beat = lead->beat;
    TRY(search_list(p, fixed, 0, out));
    if (out->n == 1)
        return OK;
    out->brief = brief;
    out->known = lead->known;
    struct trials t = {p, out, TRIAL_SLACK};
    if (beat && lead->gain < SEARCH_GAIN)
        out->beat = beat->seconds;
    qsort(out->candidates, (size_t)out->n, sizeof *out->candidates, candidate_order);
    enum status st = lead->first ? put_found(out, lead->first) : out->known ? put_first(out, fixed, beat) : OK;
    int worth = !beat || beat->excess > 1 || lead->first || is_promising(out, beat, lead->gain);
    if (st == OK && worth)
        st = select_fastest(p, out);
    if (st == OK && worth && !brief && !hurry_asked())
        st = search_around(&t, out);
    out->known = NULL;
    if (st != OK)
        search_destroy(out);
    return st;
}

/* Tells whether the best of x was tried and gains SEARCH_GAIN over c, or fits while c does not. */
static int is_worth(const struct search *x, const struct candidate *c)
{
    const struct candidate *best = &x->candidates[0];
    return best->tried &&
           (c->excess <= 1 ? best->excess <= 1 && best->seconds < (1 - SEARCH_GAIN) * c->seconds : best->excess < c->excess);
}

enum status search_create(const struct problem *p, const struct strategy *fixed, struct search *out)
{
    return search_to_beat(p, fixed, &(struct search_lead){0}, out);
}

enum status search_to_beat(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead,
                           struct search *out)
{
    struct strategy fewer = *fixed;
    TRY(search_inputs(p, fixed, lead, 0, out));
    while (out->n_tried > 0 && !isfinite(out->beat) && search_fewer_inputs(p, &fewer)) {
        const struct candidate *best = &out->candidates[0];
        struct search x;
        if (best->excess > INPUTS_HELP || (best->excess <= 1 && hurry_asked()) ||
            (best->excess <= 1 && best->compute >= (1 - SEARCH_GAIN) * best->seconds))
            return OK;
        const struct search_lead more = {.beat = best, .gain = SEARCH_GAIN};
        enum status st = search_inputs(p, &fewer, &more, 0, &x);
        if (st != OK) {
            search_destroy(out);
            return st;
        }
        int worth = is_worth(&x, best), fits = best->excess <= 1;
        double gained = best->excess - x.candidates[0].excess;
        search_destroy(worth ? out : &x);
        if (worth)
            *out = x;
        if (fits ? !worth : search_is_hopeless(out->candidates[0].excess, gained))
            return OK;
    }
    return OK;
}

enum status search_few(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, struct search *out)
{
    return search_inputs(p, fixed, lead, 1, out);
}

enum status search_instrs(const struct problem *p, const struct strategy *fixed, double *instrs)
{
    struct options o;
    options_of(p->model, &p->request, fixed, &o);
    return estimator_count(p, &o, fixed, instrs);
}

enum status search_estimate(const struct problem *p, const struct strategy *fixed, double *least)
{
    struct search x;
    TRY(search_list(p, fixed, 1, &x));
    *least = INFINITY;
    for (int i = 0; i < x.n; i++)
        if (x.candidates[i].excess <= 1)
            *least = fmin(*least, x.candidates[i].estimate);
    search_destroy(&x);
    return OK;
}

enum status search_briefly(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, double *spent,
                           struct candidate *out)
{
    struct search x;
    TRY(search_inputs(p, fixed, lead, 1, &x));
    *out = x.candidates[0];
    for (int i = 1; i < x.n_tried; i++)
        if (x.candidates[i].excess <= 1 && candidate_cost(&x.candidates[i]) < candidate_cost(out))
            *out = x.candidates[i];
    int single = x.n == 1;
    *spent += x.spent;
    search_destroy(&x);
    const struct strategy alone = out->strategy;
    return single ? search_price(p, &alone, out) : OK;
}
