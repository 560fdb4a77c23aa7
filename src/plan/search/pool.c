/* What a climb knows: trials by tile grid. */
#include "plan/search/pool.h"

#include "base/sys.h"
#include "plan/search/decisions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status climb_create(const struct problem *p, const struct strategy *fixed, enum climb_grids grids, struct climb **out)
{
    struct climb *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    *c = (struct climb){.problem = *p, .fixed = *fixed, .look_at = grids};
    *out = c;
    return OK;
}

void climb_destroy(struct climb *c)
{
    for (int i = 0; c && i < c->n; i++)
        search_destroy(&c->grids[i].tried);
    free(c);
}

/* The grid that `like` has, which is added if there is room; else NULL. */
static struct grid *find_or_add_grid(struct climb *c, const struct strategy *like)
{
    for (int i = 0; i < c->n; i++)
        if (strategy_same_grid(&c->grids[i].fixed, like))
            return &c->grids[i];
    if (c->n == POOL_GRIDS)
        return NULL;
    struct grid *g = &c->grids[c->n++];
    *g = (struct grid){.fixed = c->fixed, .tried = {.whole = 1, .beat = INFINITY}};
    strategy_take_grid(&g->fixed, like);
    return g;
}

enum status climb_open(struct climb *cl, const struct strategy *like, struct grid **out)
{
    struct grid *g = *out = find_or_add_grid(cl, like);
    if (!g || g->tried.estimator)
        return OK;
    struct options o;
    double all, layer;
    options_of(&cl->problem.request, &g->fixed, (int)cl->problem.model->config.layers, &o);
    TRY(estimator_create(&cl->problem, &o, &g->fixed, &g->tried.estimator));
    estimator_instrs(g->tried.estimator, &all, &layer);
    g->large = all > LOCAL_WHOLE_INSTRS;
    return OK;
}

enum status climb_add(struct grid *g, const struct candidate *c)
{
    struct search *x = &g->tried;
    if (x->n == g->room) {
        int room = g->room ? 2 * g->room : 64;
        struct candidate *more = sys_calloc((size_t)room, sizeof *more);
        if (!more)
            return status_fail(ERR_NOMEM, "out of memory while planning");
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
    return decisions_same_classes(&a->strategy, &b->strategy) && a->strategy.input_every == b->strategy.input_every;
}

/* Keeps the cheapest one of the same classes and layer inputs. */
static void add_hint(struct climb *cl, const struct candidate *c)
{
    struct candidate *hint = cl->hints;
    int at = 0, last = 0;
    while (at < cl->n_hints && candidate_price(&hint[at]) <= candidate_price(c)) {
        if (is_alike(&hint[at], c))
            return;
        at++;
    }
    for (last = at; last < cl->n_hints; last++)
        if (is_alike(&hint[last], c))
            break;
    if (at == POOL_HINTS)
        return;
    cl->n_hints += last == cl->n_hints && last < POOL_HINTS;
    last = last < POOL_HINTS ? last : POOL_HINTS - 1;
    memmove(&hint[at + 1], &hint[at], (size_t)(last - at) * sizeof *hint);
    hint[at] = *c;
}

enum status climb_add_trials(struct climb *c, const struct strategy *grid, const struct search *x)
{
    struct grid *g = find_or_add_grid(c, grid);
    for (int i = 0; g && i < x->n_tried; i++)
        if (x->candidates[i].whole)
            TRY(climb_add(g, &x->candidates[i]));
        else if (x->candidates[i].excess <= 1)
            add_hint(c, &x->candidates[i]);
    return OK;
}

int climb_trials(const struct climb *c)
{
    int n = 0;
    for (int g = 0; g < c->n; g++)
        n += c->grids[g].tried.n;
    return n;
}

double climb_price_on(const struct climb *c, const struct strategy *grid)
{
    double least = INFINITY;
    for (int g = 0; g < c->n; g++)
        for (int i = 0; i < c->grids[g].tried.n && strategy_same_grid(&c->grids[g].fixed, grid); i++)
            if (c->grids[g].tried.candidates[i].excess <= 1)
                least = fmin(least, candidate_price(&c->grids[g].tried.candidates[i]));
    return least;
}

struct candidate *climb_cheapest(struct climb *cl, double most, condition *holds)
{
    struct candidate *found = NULL;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess > 1 || candidate_price(c) >= most || (holds && !holds(cl, c)))
                continue;
            most = candidate_price(c);
            found = c;
        }
    return found;
}

int climb_find(struct climb *cl, double most, condition *holds, struct candidate *out)
{
    const struct candidate *found = climb_cheapest(cl, most, holds);
    if (found)
        *out = *found;
    return found != NULL;
}

void climb_keep_inputs(struct climb *cl, int input_every)
{
    for (int g = 0; g < cl->n; g++) {
        struct search *x = &cl->grids[g].tried;
        int n = 0;
        for (int i = 0; i < x->n; i++)
            if (x->candidates[i].strategy.input_every == input_every)
                x->candidates[n++] = x->candidates[i];
        x->n = x->n_tried = n;
        cl->grids[g].fixed.input_every = input_every;
    }
    int n = 0;
    for (int i = 0; i < cl->n_hints; i++)
        if (cl->hints[i].strategy.input_every == input_every)
            cl->hints[n++] = cl->hints[i];
    cl->n_hints = n;
    cl->fixed.input_every = input_every;
}

void climb_keep_grid(struct climb *cl, const struct strategy *grid)
{
    for (int g = 0; g < cl->n; g++)
        if (!strategy_same_grid(&cl->grids[g].fixed, grid))
            cl->grids[g].tried.n = cl->grids[g].tried.n_tried = 0;
    int n = 0;
    for (int i = 0; i < cl->n_hints; i++)
        if (strategy_same_grid(&cl->hints[i].strategy, grid))
            cl->hints[n++] = cl->hints[i];
    cl->n_hints = n;
}

int climb_next(struct climb *cl, const struct candidate *after, struct candidate *out)
{
    double least = INFINITY;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess > 1 || candidate_price(c) >= least || candidate_price(c) <= candidate_price(after))
                continue;
            least = candidate_price(c);
            *out = *c;
        }
    return isfinite(least);
}

int climb_settled(const struct climb *cl, const struct grid *g, const struct strategy *s)
{
    for (int i = 0; i < g->tried.n; i++) {
        const struct candidate *c = &g->tried.candidates[i];
        if (candidate_decides(c, s) && (isfinite(c->seconds) || c->pace >= cl->last))
            return 1;
    }
    return 0;
}

int climb_knows(const struct climb *cl, const struct candidate *c)
{
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n && strategy_same_grid(&cl->grids[g].fixed, &c->strategy); i++) {
            const struct candidate *t = &cl->grids[g].tried.candidates[i];
            if (candidate_decides(t, &c->strategy) &&
                (isfinite(t->seconds) || t->strategy.kept_chunks == c->strategy.kept_chunks))
                return 1;
        }
    return 0;
}
