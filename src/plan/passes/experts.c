/* Plans whose experts lie elsewhere than the other layers' state. */
#include "plan/passes/passes.h"

#include "plan/lower/fixed.h"
#include "plan/program_set.h"
#include "plan/search/search.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Tells whether compute waits, so that state that lies nearer may gain something. */
static int waits(const struct plan *plan)
{
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    double compute = 0;
    for (int i = 0; i < p->n_instrs; i++)
        compute += p->instrs[i].lane == LANE_COMPUTE ? p->instrs[i].end - p->instrs[i].start : 0;
    return p->seconds > EXPERTS_WAITS * compute;
}

/* Tells whether the request leaves open where experts and the rest of the state lie. */
static int is_open(const struct problem *p)
{
    const struct plan_request *s = &p->request;
    return p->model->config.experts > 0 && s->experts == OFFLOAD_AUTO && !s->evaluation &&
           (s->params == OFFLOAD_AUTO || s->grads == OFFLOAD_AUTO || s->optim == OFFLOAD_AUTO);
}

/* Returns the farthest tier of what experts have. */
static enum residency farthest(const struct placement *p)
{
    const enum residency state = p->grads > p->optim ? p->grads : p->optim;
    return p->params > state ? p->params : state;
}

/* Tries a few placements on the plan's grid whose experts lie where the request says. `out` does not fit, if none is estimated to be
 * faster than `most` seconds. */
static enum status find_apart(const struct problem *apart, const struct strategy *like, double most, struct candidate *out)
{
    struct strategy fixed;
    double least, spent = 0;
    *out = (struct candidate){.excess = INFINITY};
    TRY(plan_fixed(apart->model, &apart->request, &fixed));
    strategy_take_grid(&fixed, like);
    fixed.key.group = like->key.group;
    fixed.placement.keep_inputs = like->placement.keep_inputs;
    TRY(search_estimate(apart, &fixed, &least));
    return least < most ? search_briefly(apart, &fixed, &(struct search_lead){0}, &spent, out) : OK;
}

enum status plan_for_experts(const struct problem *p, struct plan **out)
{
    struct plan *now = *out, *next;
    struct problem apart = *p;
    const enum residency at = farthest(&now->strategy.placement);
    struct candidate c;
    const double most = (1 - EXPERTS_GAIN) * now->seconds;
    double excess;
    if (!is_open(p) || at == RES_DEVICE || !waits(now))
        return OK;
    apart.request.experts = (enum offload)(OFFLOAD_NONE + (int)at);
    TRY(find_apart(&apart, &now->strategy, most, &c));
    if (c.excess > 1 || c.seconds >= most)
        return OK;
    TRY(plan_candidate(p, &c, 0, &excess, &next));
    next->default_grid = now->default_grid;
    next->finer = now->finer;
    const int better = next->fits && next->seconds < most;
    *out = better ? next : now;
    plan_destroy(better ? now : next);
    return OK;
}
