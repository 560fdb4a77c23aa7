/* Trials by tile grid, the memory of local search. */
#include "plan/search/pool.h"

#include "base/sys.h"
#include "plan/search/decisions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status pool_create(const struct problem *p, const struct strategy *fixed, enum pool_grids grids, struct pool **out)
{
    struct pool *pool = sys_calloc(1, sizeof *pool);
    if (!pool)
        return status_no_memory("while planning");
    *pool = (struct pool){.problem = *p, .fixed = *fixed, .allowed = grids};
    *out = pool;
    return OK;
}

void pool_destroy(struct pool *pool)
{
    for (int i = 0; pool && i < pool->n; i++)
        search_destroy(&pool->grids[i].tried);
    free(pool);
}

/* Returns the grid of `like`, which is added if there is room; else NULL. */
static struct pool_grid *find_or_add_grid(struct pool *pool, const struct strategy *like)
{
    for (int i = 0; i < pool->n; i++)
        if (strategy_same_grid(&pool->grids[i].fixed, like))
            return &pool->grids[i];
    if (pool->n == POOL_GRIDS)
        return NULL;
    struct pool_grid *g = &pool->grids[pool->n++];
    *g = (struct pool_grid){.fixed = pool->fixed, .tried = {.all_layers = 1, .beat = INFINITY}};
    strategy_take_grid(&g->fixed, like);
    return g;
}

enum status pool_open(struct pool *pool, const struct strategy *like, struct pool_grid **out)
{
    struct pool_grid *g = *out = find_or_add_grid(pool, like);
    if (!g || g->tried.estimator)
        return OK;
    struct options o;
    double all, layer;
    options_of(pool->problem.model, &pool->problem.request, &g->fixed, &o);
    TRY(estimator_create(&pool->problem, &o, &g->fixed, &g->tried.estimator));
    estimator_instrs(g->tried.estimator, &all, &layer);
    g->large = all > LOCAL_WHOLE_INSTRS;
    return OK;
}

enum status pool_add(struct pool_grid *g, const struct candidate *c)
{
    struct search *x = &g->tried;
    if (x->n == g->room) {
        int room = g->room ? 2 * g->room : 64;
        struct candidate *more = sys_calloc((size_t)room, sizeof *more);
        if (!more)
            return status_no_memory("while planning");
        if (x->n > 0)
            memcpy(more, x->candidates, (size_t)x->n * sizeof *more);
        free(x->candidates);
        x->candidates = more;
        g->room = room;
    }
    x->candidates[x->n++] = *c;
    x->n_tried = x->n;
    return OK;
}

static int is_alike(const struct candidate *a, const struct candidate *b)
{
    return decisions_same_classes(&a->strategy, &b->strategy) &&
           a->strategy.placement.keep_inputs == b->strategy.placement.keep_inputs;
}

/* Adds c to the hints; of the same classes and layer inputs, only the cheapest stays. */
static void add_hint(struct pool *pool, const struct candidate *c)
{
    struct candidate *hint = pool->hints;
    int at = 0, last = 0;
    while (at < pool->n_hints && candidate_price(&hint[at]) <= candidate_price(c)) {
        if (is_alike(&hint[at], c))
            return;
        at++;
    }
    for (last = at; last < pool->n_hints; last++)
        if (is_alike(&hint[last], c))
            break;
    if (at == POOL_HINTS)
        return;
    pool->n_hints += last == pool->n_hints && last < POOL_HINTS;
    last = last < POOL_HINTS ? last : POOL_HINTS - 1;
    memmove(&hint[at + 1], &hint[at], (size_t)(last - at) * sizeof *hint);
    hint[at] = *c;
}

enum status pool_add_search(struct pool *pool, const struct strategy *grid, const struct search *x)
{
    struct pool_grid *g = find_or_add_grid(pool, grid);
    for (int i = 0; g && i < x->n_tried; i++)
        if (x->candidates[i].all_layers)
            TRY(pool_add(g, &x->candidates[i]));
        else if (x->candidates[i].excess <= 1)
            add_hint(pool, &x->candidates[i]);
    return OK;
}

int pool_trials(const struct pool *pool)
{
    int n = 0;
    for (int g = 0; g < pool->n; g++)
        n += pool->grids[g].tried.n;
    return n;
}

double pool_price_on(const struct pool *pool, const struct strategy *grid)
{
    double least = INFINITY;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n && strategy_same_grid(&pool->grids[g].fixed, grid); i++)
            if (pool->grids[g].tried.candidates[i].excess <= 1)
                least = fmin(least, candidate_price(&pool->grids[g].tried.candidates[i]));
    return least;
}

struct candidate *pool_cheapest(struct pool *pool, double most, condition *holds)
{
    struct candidate *found = NULL;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++) {
            struct candidate *c = &pool->grids[g].tried.candidates[i];
            if (c->excess > 1 || candidate_price(c) >= most || (holds && !holds(pool, c)))
                continue;
            most = candidate_price(c);
            found = c;
        }
    return found;
}

int pool_find(struct pool *pool, double most, condition *holds, struct candidate *out)
{
    const struct candidate *found = pool_cheapest(pool, most, holds);
    if (found)
        *out = *found;
    return found != NULL;
}

void pool_keep_inputs(struct pool *pool, int keep_inputs)
{
    for (int g = 0; g < pool->n; g++) {
        struct search *x = &pool->grids[g].tried;
        int n = 0;
        for (int i = 0; i < x->n; i++)
            if (x->candidates[i].strategy.placement.keep_inputs == keep_inputs)
                x->candidates[n++] = x->candidates[i];
        x->n = x->n_tried = n;
        pool->grids[g].fixed.placement.keep_inputs = keep_inputs;
    }
    int n = 0;
    for (int i = 0; i < pool->n_hints; i++)
        if (pool->hints[i].strategy.placement.keep_inputs == keep_inputs)
            pool->hints[n++] = pool->hints[i];
    pool->n_hints = n;
    pool->fixed.placement.keep_inputs = keep_inputs;
}

void pool_keep_grid(struct pool *pool, const struct strategy *grid)
{
    for (int g = 0; g < pool->n; g++)
        if (!strategy_same_grid(&pool->grids[g].fixed, grid))
            pool->grids[g].tried.n = pool->grids[g].tried.n_tried = 0;
    int n = 0;
    for (int i = 0; i < pool->n_hints; i++)
        if (strategy_same_grid(&pool->hints[i].strategy, grid))
            pool->hints[n++] = pool->hints[i];
    pool->n_hints = n;
}

int pool_next(const struct pool *pool, const struct candidate *after, struct candidate *out)
{
    double least = INFINITY;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++) {
            const struct candidate *c = &pool->grids[g].tried.candidates[i];
            if (c->excess > 1 || candidate_price(c) >= least || candidate_price(c) <= candidate_price(after))
                continue;
            least = candidate_price(c);
            *out = *c;
        }
    return isfinite(least);
}

int pool_decided(const struct pool *pool, const struct pool_grid *g, const struct strategy *s)
{
    for (int i = 0; i < g->tried.n; i++) {
        const struct candidate *c = &g->tried.candidates[i];
        if (candidate_decides(c, s) && (isfinite(c->seconds) || c->level >= pool->last_level))
            return 1;
    }
    return 0;
}

int pool_knows(const struct pool *pool, const struct candidate *c)
{
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n && strategy_same_grid(&pool->grids[g].fixed, &c->strategy); i++) {
            const struct candidate *t = &pool->grids[g].tried.candidates[i];
            if (candidate_decides(t, &c->strategy) &&
                (isfinite(t->seconds) || t->strategy.placement.kept_chunks == c->strategy.placement.kept_chunks))
                return 1;
        }
    return 0;
}
