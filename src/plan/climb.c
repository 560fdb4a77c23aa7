/* From the best placement that was tried to better ones beside it. */
#include "plan/climb_grids.h"

#include "base/parallel.h"
#include "plan/plan.h"

#include <math.h>

/* CLIMB_CLOSE, OTHERWISE, AWAY, IN_VAIN and STARTS as measured in bench/results/2026-11-23-search-vs-random.txt; the others were
 * not varied. Of the price to beat: what is reckoned to take longer even without stalls is not tried. */
#define CLIMB_FASTER 0.999
/* Nor are neighbours that are expected to take so many times the best. Families whose cheapest trial takes so many times as long
 * are no starts. */
#define CLIMB_CLOSE 1.05
#define FAMILY_CLOSE 1.1
/* What is slower by this or less is tried otherwise, too: a distance that memory allows may be one that is too long. */
#define OTHERWISE 1.02
/* Instructions to schedule, once for every distance that is looked at: seconds on one processor; of programs that are not small
 * as many only where so much of the step is to be gained, and a fraction where there is less. */
#define CLIMB_INSTRS (8 * SEARCH_INSTRS)
#define CLIMB_GAIN 0.02
enum {
    AWAY = 2,           /* choices in which a neighbour may differ */
    TRIALS_AT_ONCE = 4, /* neighbours that are tried at the same time: the same on any machine */
    IN_VAIN = 32,
    STARTS = 4,
    COARSER = 6 /* steps to a grid whose programs are small enough */
};

/* Choices in which two placements differ. */
static int distance(const struct strategy *a, const struct strategy *b)
{
    return (a->params != b->params) + (a->grads != b->grads) + (a->optim != b->optim) +
           (a->acts != b->acts || a->passing != b->passing) + (a->update_on_host != b->update_on_host) +
           (a->device_layers != b->device_layers);
}

static int passes_alike(const struct strategy *tried, const struct strategy *c)
{
    return tried->passing == c->passing && search_tells_of(tried, c);
}

/* The price that c is expected to have: what exceeds estimates in proportion to traffic, as trials of the same classes have shown
 * on any grid, else those of its family that pass things on alike, else others of its family, else the best one. */
static double expected(const struct climb *cl, const struct candidate *c, const struct candidate *best)
{
    static resemblance *const like[] = {search_same_classes, passes_alike, search_tells_of};
    enum { LIKE = sizeof like / sizeof *like };
    double rate = INFINITY;
    for (int i = 0; i < LIKE && !isfinite(rate); i++)
        for (int g = 0; g < cl->n; g++)
            rate = fmin(rate, stalls_of(&cl->grids[g].tried, c, like[i]));
    if (!isfinite(rate))
        rate = (search_weighed(best) - best->estimate) / fmax(best->traffic, 1e-9);
    return c->estimate + rate * c->traffic;
}

/* What to try next: the cheapest as expected, in that order. */
struct neighbours {
    struct candidate c[TRIALS_AT_ONCE];
    double expected[TRIALS_AT_ONCE];
    struct grid *grid[TRIALS_AT_ONCE];
    int n;
};

static void leave_out(struct neighbours *list, int at)
{
    list->n--;
    for (int i = at; i < list->n; i++) {
        list->c[i] = list->c[i + 1];
        list->expected[i] = list->expected[i + 1];
        list->grid[i] = list->grid[i + 1];
    }
}

/* One of the same classes is enough at a time: the one that is expected to be the cheapest. */
static void offer(struct neighbours *list, struct grid *g, const struct candidate *c, double price)
{
    int same = 0;
    while (same < list->n && !search_same_classes(&list->c[same].strategy, &c->strategy))
        same++;
    if (same < list->n && list->expected[same] <= price)
        return;
    if (same < list->n)
        leave_out(list, same);
    int at = list->n;
    while (at > 0 && price < list->expected[at - 1])
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
    list->expected[at] = price;
    list->grid[at] = g;
}

/* The same where one of a family is enough. */
static void offer_family(struct neighbours *list, struct grid *g, const struct candidate *c)
{
    for (int i = 0; i < list->n; i++)
        if (search_tells_of(&list->c[i].strategy, &c->strategy) || search_tells_of(&c->strategy, &list->c[i].strategy)) {
            if (c->estimate < list->expected[i]) {
                list->c[i] = *c;
                list->expected[i] = c->estimate;
            }
            return;
        }
    offer(list, g, c, c->estimate);
}

static int fewest_kept(const struct grid *g)
{
    const struct options *o = estimator_options(g->tried.estimator);
    return o->kept[o->n_kept - 1];
}

/* As large a share of the chunks as `like` keeps. */
static int share_kept(const struct grid *g, const struct strategy *like)
{
    const struct options *o = estimator_options(g->tried.estimator);
    int high = o->kept[0], low = fewest_kept(g), share = strategy_share(&g->fixed, like);
    return share < low ? low : share > high ? high : share;
}

/* The best one's classes but for a few, on one grid: with as large a share of the chunks kept, as many as ought to fit, and
 * halfway to there and to the fewest. */
static void offer_neighbours(const struct climb *cl, struct grid *g, const struct candidate *best, struct neighbours *list)
{
    const struct search *x = &g->tried;
    const struct options *o = estimator_options(x->estimator);
    int high = o->kept[0], low = fewest_kept(g), share = share_kept(g, &best->strategy);
    enum { SHARE, MOST, MORE, FEWER, WAYS };
    const int kept[WAYS] = {[SHARE] = share, [MOST] = low, [MORE] = (share + high) / 2, [FEWER] = (low + share) / 2};
    for (int i = 0; i < options_count(o); i += o->n_kept) {
        struct candidate c = {.strategy = g->fixed};
        options_place(o, i, &c.strategy);
        if (distance(&c.strategy, &best->strategy) > AWAY ||
            (cl->look_at == CLIMB_FINE_GRIDS && search_is_coarse(&c.strategy) && g->fixed.row_chunk > cl->fixed.row_chunk))
            continue;
        for (int k = 0; k < WAYS; k++) {
            c.strategy.kept_chunks = kept[k];
            estimator_judge(x->estimator, &c);
            if (k == MOST && c.excess <= 1)
                search_keep_most(x, high, &c);
            if (c.redundant || c.excess > 1 || c.estimate >= CLIMB_FASTER * search_weighed(best) ||
                search_settled(x, &c.strategy))
                continue;
            double price = expected(cl, &c, best);
            if (price < CLIMB_CLOSE * search_weighed(best))
                offer(list, g, &c, price);
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
    struct grid *g;
    TRY(climb_open(cl, like, &g));
    if (g && !g->large && alpha_error(cl, &g->fixed) <= alpha_error(cl, &cl->fixed))
        offer_neighbours(cl, g, best, list);
    return OK;
}

static enum status find_neighbours(struct climb *cl, const struct candidate *best, struct neighbours *list)
{
    list->n = 0;
    TRY(look_on_grid(cl, &best->strategy, best, list));
    for (int i = 0; cl->look_at != CLIMB_GIVEN_GRIDS && i < PLAN_NEAR_TILES; i++) {
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
        TRY(climb_add(list->grid[i], &list->c[i]));
        if (!search_same_classes(&attempts[i].asked.strategy, &list->c[i].strategy))
            TRY(climb_add(list->grid[i], &attempts[i].asked));
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
    for (int vain = 0; vain < IN_VAIN && cl->spent < cl->most;) {
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
    const double most = (1 + search_margin(&cl->s)) * search_weighed(best);
    struct candidate other;
    int usual = climb_find(cl, most, is_on_usual_grid, &other);
    *best = usual ? other : *best;
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess <= 1 && search_weighed(c) < most && search_score(c) < search_score(best) &&
                strategy_same_grid(&c->strategy, &best->strategy))
                *best = *c;
        }
}

/* *out: the grid that `like` has, or the next one with larger tiles whose programs are small enough; NULL: there is none. */
static enum status open_coarser(struct climb *cl, const struct strategy *like, struct grid **out)
{
    struct strategy at = *like;
    TRY(climb_open(cl, &at, out));
    for (int i = 0; i < COARSER && *out && (*out)->large; i++) {
        const enum tile_size first = i % 2 ? TILE_ROWS : TILE_HEADS, second = i % 2 ? TILE_HEADS : TILE_ROWS;
        if (cl->look_at == CLIMB_GIVEN_GRIDS || search_is_bulky(cl->m, &cl->fixed, cl->limit) ||
            (!plan_other_tiles(cl->m, &cl->s, first, 0, &at) && !plan_other_tiles(cl->m, &cl->s, second, 0, &at)))
            break;
        TRY(climb_open(cl, &at, out));
    }
    if (*out && (*out)->large)
        *out = NULL;
    return OK;
}

/* Of what was tried on a few layers the best, to be tried whole, on their grids or coarser ones. */
static enum status find_hinted(struct climb *cl, int from, struct neighbours *list)
{
    list->n = 0;
    for (int i = from; i < cl->n_hints && i < from + TRIALS_AT_ONCE; i++) {
        const struct candidate *hint = &cl->hints[i];
        struct grid *g;
        TRY(open_coarser(cl, &hint->strategy, &g));
        if (!g)
            continue;
        struct candidate c = {.strategy = g->fixed, .late = hint->late};
        strategy_place(&c.strategy, &hint->strategy);
        if (c.strategy.device_chunks > 0)
            TRY(estimator_split(g->tried.estimator));
        int share = share_kept(g, &hint->strategy);
        c.strategy.kept_chunks = share;
        estimator_judge(g->tried.estimator, &c);
        if (c.excess > 1) {
            c.strategy.kept_chunks = fewest_kept(g);
            estimator_judge(g->tried.estimator, &c);
            search_keep_most(&g->tried, share, &c);
        }
        if (c.excess <= 1 && !search_settled(&g->tried, &c.strategy))
            offer(list, g, &c, hint->seconds);
    }
    return OK;
}

/* What was tried on a few layers may take longer than the others of these. */
static enum status try_hinted(struct climb *cl, struct candidate *best)
{
    struct neighbours list;
    for (int from = 0; from < cl->n_hints && cl->spent < cl->most; from += TRIALS_AT_ONCE) {
        TRY(find_hinted(cl, from, &list));
        TRY(try_neighbours(cl, &list, INFINITY));
    }
    best->excess = INFINITY; /* if none of these fits */
    climb_find(cl, INFINITY, NULL, best);
    return OK;
}

/* Whether some trial of all layers tells of the family of s. */
static int is_told_of(const struct climb *cl, const struct strategy *s)
{
    for (int g = 0; g < cl->n; g++)
        for (int i = 0; i < cl->grids[g].tried.n; i++) {
            const struct candidate *c = &cl->grids[g].tried.candidates[i];
            if (c->excess <= 1 && search_tells_of(&c->strategy, s))
                return 1;
        }
    return 0;
}

/* One of each family that no trial tells of and that may be faster, on the best one's grid: those with the lowest estimates. */
static void find_untold(const struct climb *cl, struct grid *g, const struct candidate *best, struct neighbours *list)
{
    const struct options *o = estimator_options(g->tried.estimator);
    const int kept[] = {share_kept(g, &best->strategy), fewest_kept(g)};
    list->n = 0;
    for (int i = 0; i < options_count(o); i += o->n_kept) {
        struct candidate c = {.strategy = g->fixed};
        options_place(o, i, &c.strategy);
        if (is_told_of(cl, &c.strategy))
            continue;
        for (int k = 0; k < 2; k++) {
            c.strategy.kept_chunks = kept[k];
            estimator_judge(g->tried.estimator, &c);
            if (k == 1 && c.excess <= 1)
                search_keep_most(&g->tried, o->kept[0], &c);
            if (c.redundant || c.excess > 1 || c.estimate >= CLIMB_FASTER * search_weighed(best) ||
                search_settled(&g->tried, &c.strategy))
                continue;
            offer_family(list, g, &c);
        }
    }
}

static enum status try_untold(struct climb *cl, struct candidate *best)
{
    struct neighbours list;
    struct grid *g;
    TRY(climb_open(cl, &best->strategy, &g));
    if (!g || g->large)
        return OK;
    while (cl->spent < cl->most) {
        find_untold(cl, g, best, &list);
        if (list.n == 0)
            return OK;
        TRY(try_neighbours(cl, &list, best->seconds));
        climb_find(cl, search_weighed(best), NULL, best);
    }
    return OK;
}

/* Instructions to schedule at most. */
static enum status limit_effort(struct climb *cl, const struct candidate *best)
{
    struct grid *g;
    double all = 0, layer, gain = (best->seconds - best->least_compute) / best->seconds;
    TRY(climb_open(cl, &best->strategy, &g));
    if (g)
        estimator_instrs(g->tried.estimator, &all, &layer);
    cl->most = CLIMB_INSTRS * (all <= SEARCH_WHOLE ? 1 : fmin(1, gain / CLIMB_GAIN));
    return OK;
}

enum status climb_run(struct climb *cl, struct candidate *best)
{
    climb_keep_inputs(cl, best->strategy.input_every);
    if (cl->look_at == CLIMB_GIVEN_GRIDS)
        climb_keep_grid(cl, &best->strategy);
    TRY(limit_effort(cl, best));
    if (!best->whole)
        TRY(try_hinted(cl, best));
    if (best->excess > 1)
        return OK;
    climb_find(cl, search_weighed(best), NULL, best);
    TRY(try_untold(cl, best));
    struct candidate next = *best;
    for (int i = 0; i < STARTS && (i == 0 || climb_find(cl, FAMILY_CLOSE * search_weighed(best), is_another_family, &next));
         i++) {
        TRY(climb_from(cl, &next));
        if (search_weighed(&next) < search_weighed(best))
            *best = next;
    }
    prefer_less_traffic(cl, best);
    return OK;
}
