/* Plans that send less, if slow links would hold the step up. */
#include "plan/passes/passes.h"

#include "plan/lower/grid.h"
#include "plan/program_set.h"
#include "plan/search/price.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Replaces *out and *now by the plan of `more`, if it takes at most `most` seconds and slow links delay it less. Plans it only if
 * its trial promises that, beside `tried`, the trial of *now. */
static enum status plan_instead(const struct problem *p, const struct strategy *more, double most, const struct candidate *tried,
                                struct candidate *now, struct plan **out)
{
    struct candidate next;
    struct plan *plan;
    double excess;
    TRY(search_price(p, more, &next));
    if (next.excess > 1 || next.seconds > most || next.slow >= (1 - SLOW_LINKS_GAIN) * fmin(now->slow, tried->slow))
        return OK;
    TRY(plan_candidate(p, &next, 0, &excess, &plan));
    plan->default_grid = (*out)->default_grid;
    if (plan->default_grid.row_chunk == more->key.row_chunk && plan->default_grid.head_tile == more->key.head_tile &&
        plan->default_grid.loss_tile == more->key.loss_tile)
        plan->default_grid = (struct default_grid){0};
    plan->finer = (*out)->finer;
    enum status st = plan->fits ? plan_as_candidate(plan, &next) : OK;
    int better = st == OK && plan->fits && next.seconds <= most && next.slow < now->slow;
    plan_destroy(better ? *out : plan);
    *out = better ? plan : *out;
    *now = better ? next : *now;
    return st;
}

enum status plan_for_slow_links(const struct problem *p, struct plan **out)
{
    struct candidate now, tried;
    double most = (1 + SLOW_LINKS_GIVE) * (*out)->seconds;
    TRY(plan_as_candidate(*out, &now));
    for (int i = 0; i < SLOW_LINKS_STEPS && candidate_suffers(&now) && now.strategy.placement.acts != RES_DEVICE; i++) {
        struct strategy promoted = now.strategy, fewer = now.strategy, finer = now.strategy;
        int chunks = (int)ceil_div(now.strategy.rows, now.strategy.key.row_chunk),
            part = (int)ceil_div(chunks, SLOW_LINKS_CHUNKS);
        double before = now.slow;
        TRY(search_price(p, &now.strategy, &tried));
        if (fewer.placement.kept_chunks < chunks && promoted.placement.device_chunks < chunks - fewer.placement.kept_chunks)
            /* on the device at once: all chunks that are not kept; kept ones are sent to another tier */
            promoted.placement.device_chunks = chunks - fewer.placement.kept_chunks;
        promoted.placement.device_chunks += part;
        fewer.placement.kept_chunks -= part;
        if (p->request.acts == OFFLOAD_AUTO && promoted.placement.device_chunks < chunks)
            TRY(plan_instead(p, &promoted, most, &tried, &now, out));
        if (now.slow == before && p->request.alpha < 0 && fewer.placement.kept_chunks >= 0)
            TRY(plan_instead(p, &fewer, most, &tried, &now, out));
        if (now.slow == before && (*out)->default_grid.head_tile > 0 &&
            plan_other_tiles(p->model, &p->request, TILE_ROWS, 1, &finer)) {
            finer.placement.device_chunks = 2 * now.strategy.placement.device_chunks;
            finer.placement.kept_chunks = strategy_share(&finer, &now.strategy);
            TRY(plan_instead(p, &finer, most, &tried, &now, out));
        }
        if (now.slow == before)
            return OK;
    }
    return OK;
}
