/* Around the fastest placement that was tried: other numbers of kept chunks, and less traffic at almost its speed. */
#include "plan/search/refine.h"

#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

struct refining {
    const struct trials *trials;
    struct search *x;
    double spent; /* instructions */
    double room;  /* largest estimated excess that ought to fit, lowered by trials that did not fit */
};

static enum status try(struct refining *r, struct candidate *c)
{
    struct search *x = r->x;
    double estimated = c->excess;
    r->spent += trial_instrs(r->trials, c);
    c->retried = 0;
    TRY(trial_run(r->trials, c, c->first_level));
    if (c->excess > 1)
        r->room = fmin(r->room, estimated / c->excess);
    memmove(&x->candidates[x->n_tried + 1], &x->candidates[x->n_tried], (size_t)(x->n - x->n_tried) * sizeof *c);
    x->candidates[x->n_tried++] = *c;
    x->n++;
    return OK;
}

/* Sets c's seconds to its estimate and the stalls of `tried`, in proportion to traffic. */
static void expect(struct candidate *c, const struct candidate *tried)
{
    double traffic = c->traffic / fmax(tried->traffic, 1e-9);
    c->seconds = c->estimate + (tried->seconds - tried->estimate) * traffic;
    c->slow = c->estimate + (tried->slow - tried->estimate) * traffic;
}

/* Varies the number of kept chunks in steps, from an eighth of the range down to one chunk, each toward the faster side. */
static enum status refine_kept(struct refining *r, struct candidate *best)
{
    const struct options *o = estimator_options(r->x->estimator);
    int most = options_most_kept(o), fewest = options_fewest_kept(o), tries = 0;
    for (int step = (most - fewest + 7) / 8; step > 0; step = step > 1 ? (step + 1) / 2 : 0)
        for (int sign = 1; sign >= -1 && tries < REFINE_FINER && r->spent < REFINE_INSTRS; sign -= 2) {
            struct candidate c = *best;
            c.strategy.placement.kept_chunks += sign * step;
            if (c.strategy.placement.kept_chunks > most || c.strategy.placement.kept_chunks < fewest ||
                search_decided(r->x, &c.strategy))
                continue;
            estimator_judge(r->x->estimator, &c);
            expect(&c, best);
            if (c.excess > 1 || candidate_cost(&c) >= REFINE_BELOW * candidate_cost(best))
                continue;
            TRY(try(r, &c));
            tries++;
            if (c.excess <= 1 && candidate_cost(&c) < candidate_cost(best)) {
                *best = c;
                break;
            }
        }
    return OK;
}

/* Finds the placement with the best score, below *least, among those that ought to fit and cost at most `highest`. Returns 0 if
 * there is none. */
static int find_less_traffic(const struct refining *r, const struct candidate *fastest, double highest, double *least,
                             struct candidate *out)
{
    const struct options *o = estimator_options(r->x->estimator);
    int found = 0, most = options_most_kept(o), fewest = options_fewest_kept(o),
        step = (int)max_i64(1, (most - fewest + 31) / 32);
    for (int i = 0; i < options_count(o); i += o->n[DECISION_KEPT_CHUNKS])
        for (int kept = fewest; kept <= most; kept += step) {
            struct candidate c = *fastest;
            options_place(o, i, &c.strategy);
            c.strategy.placement.kept_chunks = kept;
            estimator_judge(r->x->estimator, &c);
            expect(&c, fastest);
            if (c.redundant || c.excess > r->room || candidate_cost(&c) > highest || candidate_score(&c) >= *least ||
                search_decided(r->x, &c.strategy))
                continue;
            *least = candidate_score(&c);
            *out = c;
            found = 1;
        }
    return found;
}

/* Returns the cost up to which a placement is fast enough, given the trials so far. */
static double enough(const struct refining *r)
{
    const struct search *x = r->x;
    double least = INFINITY;
    for (int i = 0; i < x->n_tried; i++)
        if (x->candidates[i].excess <= 1)
            least = fmin(least, candidate_cost(&x->candidates[i]));
    return (1 + (x->all_layers ? price_margin(&r->trials->problem->request) : PRICE_MARGIN_NOISY)) * least;
}

/* Brings the trial with the best score among the fast enough ones to the front. Returns the score below which a further placement
 * is worth a trial. */
static double choose(const struct refining *r)
{
    struct search *x = r->x;
    int at = -1;
    for (int i = 0; i < x->n_tried; i++) {
        const struct candidate *c = &x->candidates[i];
        if (c->excess <= 1 && candidate_cost(c) <= enough(r) &&
            (at < 0 || candidate_score(c) < candidate_score(&x->candidates[at])))
            at = i;
    }
    struct candidate chosen = x->candidates[at];
    memmove(&x->candidates[1], &x->candidates[0], (size_t)at * sizeof chosen);
    x->candidates[0] = chosen;
    return REFINE_BELOW * candidate_score(&chosen);
}

/* Bisects for the fewest kept chunks that are fast enough. */
static enum status keep_fewer(struct refining *r, double least)
{
    const struct options *o = estimator_options(r->x->estimator);
    struct candidate c = r->x->candidates[0];
    int high = c.strategy.placement.kept_chunks, low = options_fewest_kept(o);
    for (int tries = 0; low < high && tries < REFINE_FEWER && r->spent < REFINE_INSTRS;) {
        c.strategy.placement.kept_chunks = (low + high) / 2;
        estimator_judge(r->x->estimator, &c);
        c.slow = c.seconds;
        if (c.excess <= 1 && candidate_cost(&c) <= enough(r) && !search_decided(r->x, &c.strategy)) {
            if (candidate_score(&c) >= least)
                return OK;
            TRY(try(r, &c));
            tries++;
        }
        if (c.excess <= 1 && candidate_cost(&c) <= enough(r))
            high = c.strategy.placement.kept_chunks;
        else
            low = c.strategy.placement.kept_chunks + 1;
    }
    return OK;
}

enum status search_refine(const struct trials *t, struct search *x)
{
    struct refining r = {t, x, 0, 1};
    if (x->candidates[0].excess > 1)
        return OK;
    choose(&r);
    struct candidate fastest = x->candidates[0], next;
    TRY(refine_kept(&r, &fastest));
    double least = choose(&r);
    for (int i = 0;
         i < REFINE_LESS_TRAFFIC && r.spent < REFINE_INSTRS && find_less_traffic(&r, &fastest, enough(&r), &least, &next); i++) {
        TRY(try(&r, &next));
        least = choose(&r);
    }
    TRY(keep_fewer(&r, least));
    choose(&r);
    return OK;
}
