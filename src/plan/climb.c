/* From the best placement that was tried to better ones beside it. */
#include "plan/climb.h"

#include "base/parallel.h"
#include "base/sys.h"
#include "plan/plan.h"
#include "plan/search_trials.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* CLIMB_CLOSE, OTHERWISE, AWAY, IN_VAIN and STARTS as measured in bench/results/2026-11-23-search-vs-random.txt; the others were
 * not varied. Of the price to beat: what is reckoned to take longer even without stalls is not tried. */
#define CLIMB_FASTER 0.999
/* Nor are neighbours that are expected to take so many times the best. Families whose cheapest trial takes so many times as long
 * are no starts. */
#define CLIMB_CLOSE 1.05
#define FAMILY_CLOSE 1.1
/* What is slower by this or less is tried otherwise, too: a distance that memory allows may be one that is too long. */
#define OTHERWISE 1.02
/* Of those that cost more by at most this the one that moves least is taken, on the usual grid if it can be: of measured figures,
 * which are noisy, and of data sheets. */
#define AS_CHEAP_MEASURED 1.003
#define AS_CHEAP 1.0005
/* Instructions to schedule, once for every distance that is looked at: seconds on one processor. */
#define CLIMB_INSTRS (8 * SEARCH_INSTRS)
enum {
    CLIMB_GRIDS = 64,   /* further ones are not looked at; a climb of 125m at 32k tokens came to 44 */
    AWAY = 2,           /* choices in which a neighbour may differ */
    TRIALS_AT_ONCE = 4, /* neighbours that are tried at the same time: the same on any machine */
    IN_VAIN = 32,
    STARTS = 4
};

struct grid {
    struct strategy fixed;
    int large;           /* its programs are not scheduled whole */
    struct search tried; /* its candidates are the trials alone */
    int room;
};

struct climb {
    const struct model *m;
    struct settings s;
    struct strategy fixed; /* on the usual grid */
    struct cost_model cost;
    const int64_t *limit;
    int tiles;
    struct grid grids[CLIMB_GRIDS];
    int n;
    double spent;
    int gone_from[3][3][2][2]; /* by family */
};

enum status climb_create(const struct model *m, const struct settings *s, const struct strategy *fixed,
                         const struct cost_model *cost, const int64_t limit[TIERS], int tiles, struct climb **out)
{
    struct climb *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    *c = (struct climb){.m = m, .s = *s, .fixed = *fixed, .cost = *cost, .limit = limit, .tiles = tiles};
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
    if (c->n == CLIMB_GRIDS)
        return NULL;
    struct grid *g = &c->grids[c->n++];
    *g = (struct grid){.fixed = c->fixed, .tried = {.whole = 1, .beat = INFINITY}};
    strategy_take_grid(&g->fixed, like);
    return g;
}

static enum status add_trial(struct grid *g, const struct candidate *c)
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

enum status climb_add_trials(struct climb *c, const struct strategy *grid, const struct search *x)
{
    struct grid *g = find_or_add_grid(c, grid);
    for (int i = 0; g && i < x->n_tried; i++)
        if (x->candidates[i].whole)
            TRY(add_trial(g, &x->candidates[i]));
    return OK;
}

double climb_price_on(const struct climb *c, const struct strategy *grid)
{
    double least = INFINITY;
    for (int g = 0; g < c->n; g++)
        for (int i = 0; i < c->grids[g].tried.n && strategy_same_grid(&c->grids[g].fixed, grid); i++)
            if (c->grids[g].tried.candidates[i].excess <= 1)
                least = fmin(least, search_weighed(&c->grids[g].tried.candidates[i]));
    return least;
}

/* Choices in which two placements differ. */
static int distance(const struct strategy *a, const struct strategy *b)
{
    return (a->params != b->params) + (a->grads != b->grads) + (a->optim != b->optim) +
           (a->acts != b->acts || a->passing != b->passing) + (a->update_on_host != b->update_on_host) +
           (a->device_layers != b->device_layers);
}

/* Stalls as trials of the same classes have shown on any grid, else as those of its family have, else as the best one has. */
static double expected(const struct climb *cl, const struct candidate *c, const struct candidate *best)
{
    double own = INFINITY, family = INFINITY;
    for (int g = 0; g < cl->n; g++) {
        own = fmin(own, stalls_of(&cl->grids[g].tried, c, search_same_classes));
        family = fmin(family, stalls_of(&cl->grids[g].tried, c, search_tells_of));
    }
    double rate = isfinite(own) ? own : isfinite(family) ? family : (best->seconds - best->estimate) / fmax(best->traffic, 1e-9);
    return c->estimate + rate * c->traffic;
}

/* What to try next: the fastest as expected, in that order. */
struct neighbours {
    struct candidate c[TRIALS_AT_ONCE];
    double expected[TRIALS_AT_ONCE];
    struct grid *grid[TRIALS_AT_ONCE];
    int n;
};

static void offer(struct neighbours *list, struct grid *g, const struct candidate *c, double seconds)
{
    for (int i = 0; i < list->n; i++)
        if (list->grid[i] == g && search_same_classes(&list->c[i].strategy, &c->strategy) &&
            list->c[i].strategy.kept_chunks == c->strategy.kept_chunks)
            return;
    int at = list->n;
    while (at > 0 && seconds < list->expected[at - 1])
        at--;
    if (at == TRIALS_AT_ONCE)
        return;
    list->n += list->n < TRIALS_AT_ONCE;
    for (int i = list->n - 1; i > at; i--) {
        list->c[i] = list->c[i - 1];
        list->expected[i] = list->expected[i - 1];
        list->grid[i] = list->grid[i - 1];
    }
    list->c[at] = *c;
    list->expected[at] = seconds;
    list->grid[at] = g;
}

/* The best one's classes but for a few, on one grid: with as large a share of the chunks kept, as many as ought to fit, and
 * halfway to there and to the fewest. */
static void offer_neighbours(const struct climb *cl, struct grid *g, const struct candidate *best, struct neighbours *list)
{
    const struct search *x = &g->tried;
    const struct options *o = estimator_options(x->estimator);
    int high = o->kept[0], low = o->kept[o->n_kept - 1],
        share = (int)ceil_div(best->strategy.kept_chunks * ceil_div(g->fixed.rows, g->fixed.row_chunk),
                              ceil_div(best->strategy.rows, best->strategy.row_chunk));
    share = share < low ? low : share > high ? high : share;
    enum { SHARE, MOST, MORE, FEWER, WAYS };
    const int kept[WAYS] = {[SHARE] = share, [MOST] = low, [MORE] = (share + high) / 2, [FEWER] = (low + share) / 2};
    for (int i = 0; i < options_count(o); i += o->n_kept) {
        struct candidate c = {.strategy = g->fixed};
        options_place(o, i, &c.strategy);
        if (distance(&c.strategy, &best->strategy) > AWAY)
            continue;
        for (int k = 0; k < WAYS; k++) {
            c.strategy.kept_chunks = kept[k];
            estimator_judge(x->estimator, &c);
            if (k == MOST && c.excess <= 1)
                search_keep_most(x, high, &c);
            if (c.redundant || c.excess > 1 || c.estimate >= CLIMB_FASTER * search_weighed(best) ||
                search_settled(x, &c.strategy))
                continue;
            double seconds = expected(cl, &c, best);
            if (seconds < CLIMB_CLOSE * search_weighed(best))
                offer(list, g, &c, seconds);
        }
    }
}

/* By how much a share of the chunks that is given is missed where chunks are few. */
static double alpha_error(const struct climb *cl, const struct strategy *grid)
{
    double chunks = (double)ceil_div(grid->rows, grid->row_chunk);
    return cl->s.alpha < 0 ? 0 : fabs(floor(cl->s.alpha * chunks + 0.5) / chunks - cl->s.alpha);
}

/* On the grid that `like` has. */
static enum status look_on_grid(struct climb *cl, const struct strategy *like, const struct candidate *best,
                                struct neighbours *list)
{
    struct grid *g = find_or_add_grid(cl, like);
    if (!g || alpha_error(cl, &g->fixed) > alpha_error(cl, &cl->fixed))
        return OK;
    if (!g->tried.estimator) {
        struct options o;
        double all, layer;
        options_of(&cl->s, &g->fixed, (int)cl->m->config.layers, &o);
        TRY(estimator_create(cl->m, &cl->s, &o, &g->fixed, &cl->cost, cl->limit, &g->tried.estimator));
        estimator_instrs(g->tried.estimator, &all, &layer);
        g->large = all > SEARCH_WHOLE;
    }
    if (g->large)
        return OK;
    offer_neighbours(cl, g, best, list);
    return OK;
}

static enum status find_neighbours(struct climb *cl, const struct candidate *best, struct neighbours *list)
{
    list->n = 0;
    TRY(look_on_grid(cl, &best->strategy, best, list));
    for (int i = 0; cl->tiles && i < PLAN_NEAR_TILES; i++) {
        struct strategy near = best->strategy;
        if (plan_near_tiles(cl->m, &cl->s, i, &near))
            TRY(look_on_grid(cl, &near, best, list));
    }
    return OK;
}

/* A neighbour to be tried. */
struct attempt {
    const struct trials *trials;
    struct candidate *c, asked; /* asked: as it was to be tried, where c's classes are other ones afterwards */
    double best, spent;
};

static enum status attempt(void *job)
{
    struct attempt *a = job;
    TRY(trial_run_yielding(a->trials, a->c, a->best));
    a->spent = (1 + a->c->pace) * (1 + (a->c->written > 0)) * trial_instrs(a->trials, a->c);
    a->asked = *a->c;
    return trial_run_otherwise(a->trials, a->c, OTHERWISE * a->best, &a->spent);
}

/* All of them at the same time; best: seconds, which are what trying them otherwise is about. */
static enum status try_neighbours(struct climb *cl, struct neighbours *list, double best)
{
    struct trials trials[TRIALS_AT_ONCE];
    struct attempt attempts[TRIALS_AT_ONCE];
    for (int i = 0; i < list->n; i++) {
        trials[i] = (struct trials){cl->m, &cl->s, &cl->cost, cl->limit, &list->grid[i]->tried, TRIAL_SLACK};
        attempts[i] = (struct attempt){.trials = &trials[i], .c = &list->c[i], .best = best};
    }
    TRY(parallel_run(attempt, attempts, sizeof *attempts, list->n));
    for (int i = 0; i < list->n; i++) {
        cl->spent += attempts[i].spent;
        TRY(add_trial(list->grid[i], &list->c[i]));
        if (!search_same_classes(&attempts[i].asked.strategy, &list->c[i].strategy))
            TRY(add_trial(list->grid[i], &attempts[i].asked));
    }
    return OK;
}

static int *gone_from(struct climb *cl, const struct strategy *s)
{
    return &cl->gone_from[s->acts][s->optim][s->update_on_host != 0][s->grads == RES_DEVICE];
}

static enum status climb_from(struct climb *cl, struct candidate *best)
{
    struct neighbours list;
    *gone_from(cl, &best->strategy) = 1;
    for (int vain = 0; vain < IN_VAIN && cl->spent < CLIMB_INSTRS;) {
        TRY(find_neighbours(cl, best, &list));
        if (list.n == 0)
            return OK;
        TRY(try_neighbours(cl, &list, best->seconds));
        vain += list.n;
        for (int i = 0; i < list.n; i++)
            if (list.c[i].excess <= 1 && search_weighed(&list.c[i]) < search_weighed(best)) {
                *best = list.c[i];
                *gone_from(cl, &best->strategy) = 1;
                vain = 0;
            }
    }
    return OK;
}

typedef int condition(struct climb *cl, const struct candidate *c);

/* The cheapest trial that fits, below a price, of those for which a condition holds (NULL: of all). Returns 0 if there is none.
 */
static int find_cheapest(struct climb *cl, double most, condition *holds, struct candidate *out)
{
    int found = 0;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess > 1 || search_weighed(c) >= most || (holds && !holds(cl, c)))
                continue;
            most = search_weighed(c);
            *out = *c;
            found = 1;
        }
    return found;
}

static int is_another_family(struct climb *cl, const struct candidate *c)
{
    return !*gone_from(cl, &c->strategy);
}

static int is_on_usual_grid(struct climb *cl, const struct candidate *c)
{
    return strategy_same_grid(&c->strategy, &cl->fixed);
}

/* Of those about as cheap as the best the one that moves least. */
static void prefer_less_traffic(struct climb *cl, struct candidate *best)
{
    const double most = (cl->tiles ? AS_CHEAP : AS_CHEAP_MEASURED) * search_weighed(best);
    struct candidate other;
    int usual = find_cheapest(cl, most, is_on_usual_grid, &other);
    *best = usual ? other : *best;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess <= 1 && search_weighed(c) < most && search_score(c) < search_score(best) &&
                strategy_same_grid(&c->strategy, &best->strategy))
                *best = *c;
        }
}

/* Forgets trials with other layer inputs. */
static void forget_other_inputs(struct climb *cl, int input_every)
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
    cl->fixed.input_every = input_every;
}

/* Forgets trials on other grids. */
static void forget_other_grids(struct climb *cl, const struct strategy *grid)
{
    for (int g = 0; g < cl->n; g++)
        if (!strategy_same_grid(&cl->grids[g].fixed, grid))
            cl->grids[g].tried.n = cl->grids[g].tried.n_tried = 0;
}

enum status climb_run(struct climb *cl, struct candidate *best)
{
    struct candidate next;
    forget_other_inputs(cl, best->strategy.input_every);
    if (!cl->tiles)
        forget_other_grids(cl, &best->strategy);
    find_cheapest(cl, search_weighed(best), NULL, best);
    next = *best;
    for (int i = 0; i < STARTS && (i == 0 || find_cheapest(cl, FAMILY_CLOSE * search_weighed(best), is_another_family, &next));
         i++) {
        TRY(climb_from(cl, &next));
        if (search_weighed(&next) < search_weighed(best))
            *best = next;
    }
    prefer_less_traffic(cl, best);
    return OK;
}

int climb_next(struct climb *cl, const struct candidate *after, struct candidate *out)
{
    double least = INFINITY;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess > 1 || search_weighed(c) >= least || search_weighed(c) <= search_weighed(after))
                continue;
            least = search_weighed(c);
            *out = *c;
        }
    return isfinite(least);
}
