/* Around the fastest placement that was tried: activations split by row chunks. */
#include "plan/search/split.h"

#include "plan/search/decisions.h"
#include "plan/search/stalls.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

/* Splits that were tried. */
struct splits {
    struct search *x;
    struct candidate tried[SPLIT_TRIES];
    int n, best; /* index of the best split; -1: the search's best is better */
    double room, stalls, spent;
};

static const struct candidate *best_of(const struct splits *p)
{
    return p->best < 0 ? &p->x->candidates[0] : &p->tried[p->best];
}

static int was_tried(const struct splits *p, const struct candidate *c)
{
    for (int i = 0; i < p->n; i++)
        if (decisions_same_classes(&p->tried[i].strategy, &c->strategy))
            return 1;
    return 0;
}

/* Sets c's expected seconds: with the stalls that trials of the search and of splits have shown, and a loss on slow links in
 * proportion to the best trial's. */
static void expect(const struct splits *p, struct candidate *c)
{
    c->seconds = fmax(stalls_expect(p->x, p->x->n_tried, c), c->estimate + p->stalls);
    c->slow = c->seconds * best_of(p)->slow / best_of(p)->seconds;
}

/* Finds the split that ought to fit and be the fastest; among those as fast, the one that leaves more memory. Returns 0 if none
 * is worth trying. */
static int find_split(const struct splits *p, struct candidate *out)
{
    const struct options *o = estimator_options(p->x->estimator);
    const struct candidate *best = best_of(p);
    int chunks = (int)ceil_div(best->strategy.rows, best->strategy.key.row_chunk), found = 0;
    double least = SPLIT_BELOW * fmin(candidate_cost(best), p->x->beat);
    for (int i = 0; i < options_count(o); i += o->n[DECISION_KEPT_CHUNKS])
        for (int step = 1; step < SPLIT_STEPS; step++) {
            struct candidate c = *best;
            options_place(o, i, &c.strategy);
            c.strategy.placement.kept_chunks = best->strategy.placement.kept_chunks;
            c.strategy.placement.device_chunks = step * chunks / SPLIT_STEPS;
            if (c.strategy.placement.acts == RES_DEVICE || c.strategy.placement.device_chunks == 0)
                continue;
            estimator_judge(p->x->estimator, &c);
            expect(p, &c);
            double price = candidate_cost(&c) * (1 + 0.001 * c.excess);
            if (c.redundant || c.excess > p->room || price >= least || was_tried(p, &c))
                continue;
            least = price;
            *out = c;
            found = 1;
        }
    return found;
}

static enum status try_split(const struct trials *t, struct splits *p, const struct candidate *found)
{
    struct candidate *c = &p->tried[p->n];
    *c = *found;
    c->first_level = 0;
    c->strategy.placement.write_depth = 0;
    p->spent += trial_instrs(t, c);
    c->retried = 0;
    TRY(trial_run(t, c, 0));
    if (c->excess > 1) {
        p->room = fmin(p->room, found->excess / c->excess);
    } else {
        double stalls = c->seconds - c->estimate;
        p->stalls = p->stalls > 0 ? fmin(p->stalls, stalls) : stalls;
        if (candidate_cost(c) < candidate_cost(best_of(p)))
            p->best = p->n;
    }
    p->n++;
    return OK;
}

enum status search_split(const struct trials *t, struct search *x)
{
    struct splits p = {.x = x, .best = -1, .room = SPLIT_ROOM};
    struct candidate *first = &x->candidates[0], found;
    if (!estimator_options(x->estimator)->split || !first->tried || first->excess > 1 ||
        first->seconds < SPLIT_WAITS * first->compute)
        return OK;
    TRY(estimator_split(x->estimator));
    while (p.n < SPLIT_TRIES && p.spent < SPLIT_INSTRS && find_split(&p, &found))
        TRY(try_split(t, &p, &found));
    if (p.best < 0)
        return OK;
    memmove(first + 1, first, (size_t)x->n * sizeof *first);
    *first = p.tried[p.best];
    x->n++;
    x->n_tried++;
    return OK;
}
