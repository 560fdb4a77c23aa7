/* Local search from the best placement found on grids. */
#include "plan/search/local.h"

#include "base/hurry.h"
#include "base/parallel.h"
#include "plan/lower/grid.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/decisions.h"
#include "plan/search/moves.h"
#include "plan/search/retry.h"
#include "plan/search/tuning.h"

#include <math.h>

/* A move to be tried. */
struct attempt {
    const struct trials *trials;
    struct candidate *c, asked; /* asked: the candidate as it was before retries, which may change its classes */
    double best, spent;
};

static enum status attempt_retries(void *job)
{
    struct attempt *a = job;
    struct trials all_levels = *a->trials;
    all_levels.last_level = 0;
    return retry_all(&all_levels, a->c, LOCAL_RETRY_WITHIN * a->best, &a->spent);
}

static enum status attempt(void *job)
{
    struct attempt *a = job;
    TRY(retry_yielding(a->trials, a->c, a->best));
    /* to order a program is a third of scheduling it */
    a->spent =
        (1 + (a->c->excess > 1 ? 0.5 : 1) * log2(1 + a->c->level)) * (1 + (a->c->written > 0)) * trial_instrs(a->trials, a->c);
    a->asked = *a->c;
    TRY(attempt_retries(a));
    a->asked.retried = a->c->retried;
    return OK;
}

/* Tries all moves at the same time. *best: the placement whose seconds retries are measured by; NULL: retry at any cost and at
 * all levels. */
static enum status try_moves(struct pool *pool, struct moves *list, const struct candidate *best)
{
    struct trials trials[MOVES_AT_ONCE];
    struct attempt attempts[MOVES_AT_ONCE];
    for (int i = 0; i < list->n; i++) {
        trials[i] = (struct trials){&pool->problem, &list->grid[i]->tried, TRIAL_SLACK, best ? pool->last_level : 0};
        attempts[i] = (struct attempt){.trials = &trials[i], .c = &list->c[i], .best = best ? best->seconds : INFINITY};
    }
    TRY(parallel_run(attempt, attempts, sizeof *attempts, list->n));
    for (int i = 0; i < list->n; i++) {
        pool->spent += attempts[i].spent;
        TRY(pool_add(list->grid[i], &list->c[i]));
        if (!decisions_same_classes(&attempts[i].asked.strategy, &list->c[i].strategy))
            TRY(pool_add(list->grid[i], &attempts[i].asked));
    }
    return OK;
}

static void note_start(struct pool *pool, const struct strategy *s)
{
    pool->started[decisions_family(s)] = 1;
}

/* Limits the prefetch levels of trials to about the best trial's. If transfers limit its step, no later level is left out. Sets
 * the least price of this start. */
static void look_around(struct pool *pool, const struct candidate *best)
{
    int waits = best->seconds > LOCAL_TRANSFERS_LIMIT * best->compute;
    pool->last_level = (int)max_i64(waits ? FIT_NOT_AHEAD : FIT_LATE - 1, best->level + 2);
    pool->least = candidate_price(best);
}

/* Tells whether moves from c have not been looked at. A candidate below the least price belongs to another start. */
static int is_new(struct pool *pool, const struct candidate *c)
{
    if (candidate_price(c) < pool->least)
        return 0;
    for (int i = 0; i < pool->n_visited; i++)
        if (strategy_same_grid(&pool->visited[i], &c->strategy) &&
            pool->visited[i].placement.kept_chunks == c->strategy.placement.kept_chunks &&
            decisions_same_classes(&pool->visited[i], &c->strategy))
            return 0;
    return pool->n_visited < POOL_VISITED;
}

/* Finds moves from the best placement; if none is untried, from another placement about as cheap; else the best moves by estimate
 * alone. */
static enum status find_beside(struct pool *pool, const struct candidate *best, struct moves *list)
{
    struct candidate at = *best;
    list->n = 0;
    look_around(pool, best);
    do {
        if (is_new(pool, &at))
            pool->visited[pool->n_visited++] = at.strategy;
        TRY(moves_find(pool, &at, MOVE_BY_EXPECTATION, list));
    } while (list->n == 0 && pool_find(pool, LOCAL_CONTINUE_WITHIN * pool->least, is_new, &at));
    if (list->n > 0)
        return OK;
    return moves_find(pool, best, MOVE_BY_ESTIMATE, list);
}

/* Tries moves from *best, and goes on from each placement that is cheaper, until LOCAL_MISSES in a row are not. */
static enum status search_beside(struct pool *pool, struct candidate *best)
{
    struct moves list;
    for (int misses = 0; misses < LOCAL_MISSES && pool->spent < pool->most && !hurry_asked();) {
        TRY(find_beside(pool, best, &list));
        if (list.n == 0)
            return OK;
        TRY(try_moves(pool, &list, best));
        misses += list.n;
        for (int i = 0; i < list.n; i++)
            if (list.c[i].excess <= 1 && candidate_price(&list.c[i]) < candidate_price(best)) {
                *best = list.c[i];
                note_start(pool, &best->strategy);
                misses = 0;
            }
    }
    return OK;
}

static int is_left(struct pool *pool, const struct candidate *c)
{
    (void)pool;
    return !c->retried;
}

/* Retries trials about as cheap as *best that have not been retried, the cheapest first, a few at the same time. */
static enum status retry_left(struct pool *pool, struct candidate *best)
{
    struct trials trials[MOVES_AT_ONCE];
    struct attempt attempts[MOVES_AT_ONCE];
    for (int n = 1; n > 0 && pool->spent < pool->most && !hurry_asked();) {
        struct candidate tried[MOVES_AT_ONCE], *c;
        struct pool_grid *grid[MOVES_AT_ONCE];
        double price[MOVES_AT_ONCE];
        for (n = 0;
             n < MOVES_AT_ONCE && (c = pool_cheapest(pool, LOCAL_RETRY_WITHIN * candidate_price(best), is_left)) != NULL;) {
            c->retried = 1;
            tried[n] = *c;
            price[n] = candidate_price(c);
            TRY(pool_open(pool, &tried[n].strategy, &grid[n]));
            if (grid[n]->large)
                continue;
            if (tried[n].strategy.placement.device_chunks > 0)
                TRY(estimator_split(grid[n]->tried.estimator));
            trials[n] = (struct trials){&pool->problem, &grid[n]->tried, TRIAL_SLACK};
            attempts[n] = (struct attempt){.trials = &trials[n], .c = &tried[n], .best = best->seconds};
            n++;
        }
        TRY(parallel_run(attempt_retries, attempts, sizeof *attempts, n));
        for (int i = 0; i < n; i++) {
            pool->spent += attempts[i].spent;
            if (candidate_price(&tried[i]) < price[i])
                TRY(pool_add(grid[i], &tried[i]));
            if (candidate_price(&tried[i]) < candidate_price(best))
                *best = tried[i];
        }
    }
    return OK;
}

static enum status search_from(struct pool *pool, struct candidate *best)
{
    double before;
    do {
        before = candidate_price(best);
        note_start(pool, &best->strategy);
        TRY(search_beside(pool, best));
        before = fmin(before, candidate_price(best));
        TRY(retry_left(pool, best));
    } while (candidate_price(best) < before);
    return OK;
}

static int is_another_family(struct pool *pool, const struct candidate *c)
{
    return !pool->started[decisions_family(&c->strategy)];
}

static int is_on_default_grid(struct pool *pool, const struct candidate *c)
{
    return strategy_same_grid(&c->strategy, &pool->fixed);
}

/* Makes *best the trial on one grid that moves least among those about as cheap; on the default grid if one of them is there. */
static void prefer_less_traffic(struct pool *pool, struct candidate *best)
{
    const double most = (1 + price_margin(&pool->problem.request)) * candidate_price(best);
    struct candidate other;
    int on_default = pool_find(pool, most, is_on_default_grid, &other);
    *best = on_default ? other : *best;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++) {
            const struct candidate *c = &pool->grids[g].tried.candidates[i];
            if (c->excess <= 1 && candidate_price(c) < most && candidate_score(c) < candidate_score(best) &&
                strategy_same_grid(&c->strategy, &best->strategy))
                *best = *c;
        }
}

/* Sets *out to the grid of `like`, or the next one with larger tiles whose programs are small enough; NULL: there is none. */
static enum status open_coarser(struct pool *pool, const struct strategy *like, struct pool_grid **out)
{
    struct strategy at = *like;
    TRY(pool_open(pool, &at, out));
    for (int i = 0; i < LOCAL_COARSER && *out && (*out)->large; i++) {
        const enum tile_size first = i % 2 ? TILE_ROWS : TILE_HEADS, second = i % 2 ? TILE_HEADS : TILE_ROWS;
        if (pool->allowed == POOL_GIVEN_GRIDS || tiles_are_bulky(&pool->problem, &pool->fixed) ||
            (!plan_other_tiles(pool->problem.model, &pool->problem.request, first, 0, &at) &&
             !plan_other_tiles(pool->problem.model, &pool->problem.request, second, 0, &at)))
            break;
        TRY(pool_open(pool, &at, out));
    }
    if (*out && (*out)->large)
        *out = NULL;
    return OK;
}

/* Lists moves to the hints (the best trials of a few layers), to be tried on all layers, on their grids or coarser ones. Of
 * similar hints only one is listed: local search finds the others from there. */
static enum status find_hinted(struct pool *pool, int from, struct moves *list)
{
    list->n = 0;
    for (int i = from; i < pool->n_hints && i < from + MOVES_AT_ONCE; i++) {
        const struct candidate *hint = &pool->hints[i];
        struct pool_grid *g;
        TRY(open_coarser(pool, &hint->strategy, &g));
        if (!g)
            continue;
        struct candidate c = {.strategy = g->fixed, .first_level = hint->first_level};
        strategy_place(&c.strategy, &hint->strategy);
        if (c.strategy.placement.device_chunks > 0)
            TRY(estimator_split(g->tried.estimator));
        int share = moves_share_kept(g, &hint->strategy);
        c.strategy.placement.kept_chunks = share;
        estimator_judge(g->tried.estimator, &c);
        if (c.excess > 1) {
            c.strategy.placement.kept_chunks = moves_fewest_kept(g);
            estimator_judge(g->tried.estimator, &c);
            search_keep_most(&g->tried, share, &c);
        }
        if (c.excess <= 1 && !search_decided(&g->tried, &c.strategy))
            moves_offer(list, g, &c, hint->seconds);
    }
    return OK;
}

/* Tries the hints on all layers, and makes the cheapest trial *best. Trials of a few layers may be too short by more than the
 * differences between them. */
static enum status try_hinted(struct pool *pool, struct candidate *best)
{
    struct moves list;
    for (int from = 0; from < pool->n_hints && pool->spent < pool->most && !hurry_asked(); from += MOVES_AT_ONCE) {
        TRY(find_hinted(pool, from, &list));
        TRY(try_moves(pool, &list, NULL));
    }
    best->excess = INFINITY; /* the result if none of the moves fits */
    pool_find(pool, INFINITY, NULL, best);
    return OK;
}

/* Tells whether the result of `tried`, a trial of all layers on grid g, is evidence about the family of c. A trial that fits is
 * evidence if its estimated step is about as long as that of c.
 *
 * A trial without seconds, since it would have to fetch everything late, is evidence if it kept the fewest chunks, or if c keeps
 * more than the fewest. */
static int is_evidence(const struct pool_grid *g, const struct candidate *tried, const struct candidate *c, int fewest)
{
    if ((tried->excess > 1 && isfinite(tried->seconds)) || !decisions_same_family(&tried->strategy, &c->strategy))
        return 0;
    if (isinf(tried->seconds))
        return tried->strategy.placement.kept_chunks <= moves_fewest_kept(g) || c->strategy.placement.kept_chunks > fewest;
    return tried->level < FIT_LATE && tried->estimate < LOCAL_EVIDENCE_WITHIN * c->estimate;
}

static int has_evidence(const struct pool *pool, const struct candidate *c, int fewest)
{
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++)
            if (is_evidence(&pool->grids[g], &pool->grids[g].tried.candidates[i], c, fewest))
                return 1;
    return 0;
}

/* Lists the best placements by estimate on the grid of *best, one for each family that may be faster and has no evidence from
 * trials. */
static void find_untried_families(const struct pool *pool, struct pool_grid *g, const struct candidate *best, struct moves *list)
{
    const struct options *o = estimator_options(g->tried.estimator);
    enum { SHARE, MOST, FEWEST, WAYS };
    const int fewest = moves_fewest_kept(g), kept[WAYS] = {moves_share_kept(g, &best->strategy), fewest, fewest};
    list->n = 0;
    for (int i = 0; i < options_count(o); i += o->n[DECISION_KEPT_CHUNKS]) {
        struct candidate c = {.strategy = g->fixed};
        options_place(o, i, &c.strategy);
        for (int k = 0; k < WAYS; k++) {
            c.strategy.placement.kept_chunks = kept[k];
            estimator_judge(g->tried.estimator, &c);
            if (k == MOST && c.excess <= 1)
                search_keep_most(&g->tried, options_most_kept(o), &c);
            if (c.redundant || c.excess > 1 || c.estimate >= MOVE_BELOW * candidate_price(best) ||
                pool_decided(pool, g, &c.strategy) || has_evidence(pool, &c, fewest))
                continue;
            moves_offer_family(list, g, &c);
        }
    }
}

static enum status try_untried_families(struct pool *pool, struct candidate *best)
{
    struct moves list;
    struct pool_grid *g;
    TRY(pool_open(pool, &best->strategy, &g));
    if (!g || g->large)
        return OK;
    while (pool->spent < pool->most && !hurry_asked()) {
        look_around(pool, best);
        find_untried_families(pool, g, best, &list);
        if (list.n == 0)
            return OK;
        TRY(try_moves(pool, &list, best));
        pool_find(pool, candidate_price(best), NULL, best);
    }
    return OK;
}

/* Sets the number of instructions that local search may schedule. */
static enum status limit_effort(struct pool *pool, const struct candidate *best)
{
    struct pool_grid *g;
    double all = 0, layer, gain = (best->seconds - best->least_compute) / best->seconds;
    TRY(pool_open(pool, &best->strategy, &g));
    if (g)
        estimator_instrs(g->tried.estimator, &all, &layer);
    pool->most = (pool->problem.request.effort == EFFORT_BEST ? LOCAL_INSTRS : LOCAL_INSTRS_NORMAL) *
                 (all <= TRIAL_WHOLE_INSTRS ? 1 : fmin(1, gain / LOCAL_GAIN));
    return OK;
}

enum status local_search(struct pool *pool, struct candidate *best)
{
    pool_keep_inputs(pool, best->strategy.placement.keep_inputs);
    if (pool->allowed == POOL_GIVEN_GRIDS)
        pool_keep_grid(pool, &best->strategy);
    TRY(limit_effort(pool, best));
    if (!best->all_layers)
        TRY(try_hinted(pool, best));
    if (best->excess > 1)
        return OK;
    pool_find(pool, candidate_price(best), NULL, best);
    TRY(try_untried_families(pool, best));
    struct candidate next = *best;
    for (int i = 0;
         i < LOCAL_STARTS && (i == 0 || pool_find(pool, LOCAL_FAMILY_WITHIN * candidate_price(best), is_another_family, &next));
         i++) {
        TRY(search_from(pool, &next));
        if (candidate_price(&next) < candidate_price(best))
            *best = next;
        TRY(try_untried_families(pool, best));
    }
    TRY(search_from(pool, best)); /* again, now that trials from the other starts are known */
    prefer_less_traffic(pool, best);
    return OK;
}
