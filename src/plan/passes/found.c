/* Plans of the search's candidates. */
#include "plan/passes/passes.h"

#include "base/hurry.h"
#include "plan/program_set.h"
#include "plan/search/search.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

/* Plans c as tightly packed as possible. If that plan takes longer than the trial of all layers did, also plans c as loosely as
 * the trial was packed: tightly packed addresses are reused sooner, which makes lanes wait. */
static enum status plan_as_tried(const struct problem *p, const struct candidate *c, double *excess, struct plan **out)
{
    struct plan *loose;
    double of_loose;
    TRY(plan_candidate(p, c, 0, excess, out));
    if (!(*out)->fits || !c->all_layers || (*out)->seconds <= PLAN_HOLDS_WHOLE * c->seconds || hurry_asked())
        return OK;
    enum status st = plan_candidate(p, c, TRIAL_SLACK, &of_loose, &loose);
    if (st != OK) {
        plan_destroy(*out);
        return st;
    }
    int better = loose->fits && loose->seconds < (*out)->seconds;
    plan_destroy(better ? *out : loose);
    *out = better ? loose : *out;
    *excess = better ? of_loose : *excess;
    return OK;
}

/* Tells whether the plan of the i-th candidate takes no longer than its trial promised. The allowance is smaller
 * (PLAN_HOLDS_WHOLE) if this trial or that of the next candidate, which is then surely worth planning, had all layers. */
static int trial_holds(const struct search *search, int i, const struct plan *plan)
{
    const struct candidate *c = &search->candidates[i];
    int all_layers = c->all_layers || (i + 1 < search->n && c[1].tried && c[1].all_layers);
    return !c->tried || plan->seconds <= (all_layers ? PLAN_HOLDS_WHOLE : PLAN_HOLDS_FEW_LAYERS) * c->seconds;
}

/* Plans candidates in order and takes the first that fits and keeps its trial's promise; of large programs, the faster of two
 * that fit; if none fits, the one with the least excess.
 *
 * *on_default: seconds of the fastest fitting plan on the default grid; INFINITY: there is none. */
static enum status plan_first(const struct problem *p, const struct search *search, const struct strategy *fixed,
                              struct plan **out, double *on_default)
{
    struct plan *best = NULL;
    double least = INFINITY; /* excess of the best */
    *on_default = INFINITY;
    for (int i = 0; i < search->n && i < PLANS_MOST; i++) {
        const struct candidate *c = &search->candidates[i];
        struct plan *next = NULL;
        double excess = INFINITY;
        if (i > 0 && (!c->tried || c->excess > 1 || (best->fits && c->seconds >= best->seconds)))
            break;
        enum status st = plan_as_tried(p, c, &excess, &next);
        if (st != OK) {
            plan_destroy(best);
            return st;
        }
        int second = best && best->fits,
            done = next->fits && (hurry_asked() || trial_holds(search, i, next) || (second && !c->all_layers)),
            better = second ? next->fits && next->seconds < best->seconds : next->fits || !best || excess < least;
        if (next->fits && strategy_same_grid(&next->strategy, fixed))
            *on_default = fmin(*on_default, next->seconds);
        least = better ? excess : least;
        plan_destroy(better ? best : next);
        best = better ? next : best;
        if (done)
            break;
    }
    *out = best;
    return OK;
}

/* Searches a grid as `tried` says, and plans what is found within p's limits, which may be higher. */
static enum status plan_on_grid(const struct problem *tried, const struct problem *p, const struct strategy *fixed,
                                struct plan **out)
{
    struct search search;
    TRY(search_create(tried, fixed, &search));
    enum status st = plan_first(p, &search, fixed, out, &(double){0});
    search_destroy(&search);
    return st;
}

enum status plan_searched(const struct searched *v, const int64_t limit[TIERS], struct plan **out)
{
    struct plan *on_default;
    double seconds; /* seconds on the default grid */
    struct problem p = v->problem;
    memcpy(p.limit, limit, sizeof p.limit);
    TRY(plan_first(&p, &v->search, &v->default_grid, out, &seconds));
    if (strategy_same_grid(&(*out)->strategy, &v->default_grid) ||
        (v->problem.request.effort == EFFORT_QUICK && (*out)->fits)) /* effort quick does not compare grids */
        return OK;
    double slower = isfinite(seconds) ? seconds / (*out)->seconds - 1 : v->default_slower;
    (*out)->default_grid = (struct default_grid){v->default_grid.key.row_chunk, v->default_grid.key.loss_tile,
                                                 v->default_grid.key.head_tile, fmax(0, slower)};
    if (isfinite(seconds) || ((*out)->fits && hurry_asked()))
        return OK;
    const struct candidate *best = &v->search.candidates[0];
    if ((*out)->fits && v->default_slower > 0 &&
        (!best->tried || (*out)->seconds <= fmin(PLAN_HOLDS_FEW_LAYERS, 1 + v->default_slower) * best->seconds))
        return OK;
    TRY(plan_on_grid(&v->problem, &p, &v->default_grid, &on_default));
    int better = !(*out)->fits || (on_default->fits && on_default->seconds < (*out)->seconds);
    if (!better && on_default->fits)
        (*out)->default_grid.slower = on_default->seconds / (*out)->seconds - 1;
    plan_destroy(better ? *out : on_default);
    *out = better ? on_default : *out;
    return OK;
}
