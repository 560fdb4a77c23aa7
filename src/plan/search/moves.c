/* Moves from a placement, and the prices they are expected to have. */
#include "plan/search/moves.h"

#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/search/decisions.h"
#include "plan/search/stalls.h"
#include "plan/search/tuning.h"

#include <math.h>

static int passes_alike(const struct strategy *tried, const struct strategy *c)
{
    return tried->placement.passing == c->placement.passing && decisions_same_family(tried, c);
}

/* Tells whether a and b differ only in the number of layers that have a class nearer or their activations on the device. */
static int is_similar(const struct strategy *a, const struct strategy *b)
{
    struct strategy other = *b;
    other.placement.device_layers = a->placement.device_layers;
    if (a->placement.promoted_layers > 0 && b->placement.promoted_layers > 0)
        other.placement.promoted_layers = a->placement.promoted_layers;
    return decisions_same_classes(a, &other);
}

/* Counts trials similar to s, on any grid, that keep as large a share of the chunks. */
static int count_similar(const struct pool *pool, const struct strategy *s)
{
    int n = 0;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++) {
            const struct strategy *t = &pool->grids[g].tried.candidates[i].strategy;
            n += is_similar(t, s) && strategy_share(s, t) == s->placement.kept_chunks;
        }
    return n;
}

/* Tells whether no size of one grid is over four times the other's: stalls on much smaller tiles say little of larger ones. */
static int is_about_as_fine(const struct strategy *a, const struct strategy *b)
{
    return max_i64(a->key.row_chunk, b->key.row_chunk) <= MOVE_TILES_ALIKE * min_i64(a->key.row_chunk, b->key.row_chunk) &&
           max_i64(a->key.loss_tile, b->key.loss_tile) <= MOVE_TILES_ALIKE * min_i64(a->key.loss_tile, b->key.loss_tile) &&
           max_i64(a->key.head_tile, b->key.head_tile) <= MOVE_TILES_ALIKE * min_i64(a->key.head_tile, b->key.head_tile);
}

/* Returns the stalls of the trial with the same classes, a grid about as fine, and traffic nearest to c's; of several the least. */
static double stalls_of_alike(const struct pool *pool, const struct candidate *c)
{
    double nearest = MOVE_TRAFFIC_FAR, stalls = INFINITY;
    for (int g = 0; g < pool->n; g++)
        for (int i = 0; i < pool->grids[g].tried.n; i++) {
            const struct candidate *t = &pool->grids[g].tried.candidates[i];
            double apart = floor(fabs(log2(fmax(t->traffic, 1e-9) / fmax(c->traffic, 1e-9))) / MOVE_TRAFFIC_STEP);
            if (t->excess > 1 || apart > nearest || !decisions_same_classes(&t->strategy, &c->strategy) ||
                !is_about_as_fine(&t->strategy, &c->strategy))
                continue;
            stalls = apart < nearest ? stalls_scaled(t, c) : fmin(stalls, stalls_scaled(t, c));
            nearest = apart;
        }
    return stalls;
}

/* Returns the price that c is expected to have: its estimate and stalls. The stalls are those of trials with the same classes on
 * a grid about as fine; else of c's family with the same `passing`; else of its family; else of the best placement. */
static double expected(const struct pool *pool, const struct candidate *c, const struct candidate *best)
{
    static resemblance *const like[] = {passes_alike, decisions_same_family};
    enum { LIKE = sizeof like / sizeof *like };
    double stalls = stalls_of_alike(pool, c);
    for (int i = 0; i < LIKE && !isfinite(stalls); i++)
        for (int g = 0; g < pool->n; g++)
            stalls = fmin(stalls, stalls_of(&pool->grids[g].tried, c, like[i]));
    if (!isfinite(stalls))
        stalls = stalls_scaled(best, c);
    return c->estimate + stalls;
}

static void leave_out(struct moves *list, int at)
{
    list->n--;
    for (int i = at; i < list->n; i++) {
        list->c[i] = list->c[i + 1];
        list->expected[i] = list->expected[i + 1];
        list->grid[i] = list->grid[i + 1];
    }
}

static void offer(struct moves *list, resemblance *alike, struct pool_grid *g, const struct candidate *c, double price)
{
    int same = 0;
    while (same < list->n && !alike(&list->c[same].strategy, &c->strategy))
        same++;
    if (same < list->n && list->expected[same] <= price)
        return;
    if (same < list->n)
        leave_out(list, same);
    int at = list->n;
    while (at > 0 && price < list->expected[at - 1])
        at--;
    if (at == MOVES_AT_ONCE)
        return;
    list->n += list->n < MOVES_AT_ONCE;
    for (int i = list->n - 1; i > at; i--) {
        list->c[i] = list->c[i - 1];
        list->expected[i] = list->expected[i - 1];
        list->grid[i] = list->grid[i - 1];
    }
    list->c[at] = *c;
    list->expected[at] = price;
    list->grid[at] = g;
}

void moves_offer(struct moves *list, struct pool_grid *g, const struct candidate *c, double price)
{
    offer(list, is_similar, g, c, price);
}

static int is_of_family(const struct strategy *a, const struct strategy *b)
{
    return decisions_same_family(a, b) || decisions_same_family(b, a);
}

void moves_offer_family(struct moves *list, struct pool_grid *g, const struct candidate *c)
{
    offer(list, is_of_family, g, c, c->estimate);
}

int moves_fewest_kept(const struct pool_grid *g)
{
    const struct options *o = estimator_options(g->tried.estimator);
    return options_fewest_kept(o);
}

int moves_share_kept(const struct pool_grid *g, const struct strategy *like)
{
    const struct options *o = estimator_options(g->tried.estimator);
    int high = options_most_kept(o), low = moves_fewest_kept(g), share = strategy_share(&g->fixed, like);
    return share < low ? low : share > high ? high : share;
}

/* The placement that moves start from. */
struct start {
    const struct candidate *best;
    int64_t ahead[TIERS]; /* bytes that its trial took beyond its need, to fetch ahead */
    enum move_by by;
};

/* Returns the number of layers whose class ought to fit nearer, beside `ahead` bytes. */
static int64_t promotable_layers(const struct pool *pool, const struct candidate *none, const struct candidate *all,
                                 const int64_t ahead[TIERS])
{
    double layers = all->strategy.placement.promoted_layers, most = layers;
    for (int t = 0; t < TIERS; t++)
        if (all->bytes[t] > none->bytes[t])
            most = fmin(most, (double)(pool->problem.limit[t] - none->bytes[t] - ahead[t]) * layers /
                                  (double)(all->bytes[t] - none->bytes[t]));
    return (int64_t)most;
}

/* Offers c if it may be better than the start. */
static void offer_move(const struct pool *pool, struct pool_grid *g, const struct start *from, const struct candidate *c,
                       struct moves *list)
{
    const double best = candidate_price(from->best);
    if (c->redundant || c->excess > 1 || c->estimate >= MOVE_BELOW * best || pool_decided(pool, g, &c->strategy))
        return;
    double price = from->by == MOVE_BY_ESTIMATE ? c->estimate : expected(pool, c, from->best);
    if (price < (from->by == MOVE_BY_ESTIMATE ? MOVE_BY_ESTIMATE_BELOW : MOVE_WITHIN) * best)
        moves_offer(list, g, c, price * (1 + MOVE_SIMILAR * count_similar(pool, &c->strategy)));
}

/* Tells whether the whole class, embedding and head included, ought to fit in its nearer tier. If so, the placement that has it all
 * there is offered instead. */
static int may_promote_in_all(const struct estimator *e, const struct candidate *c)
{
    struct candidate all = *c;
    struct strategy *s = &all.strategy;
    s->placement.promoted_layers = 0;
    *strategy_class(s, s->placement.promoted_class) = s->placement.promote_tier;
    if (s->placement.promoted_class == CLASS_OPTIM && s->placement.promote_tier == RES_DEVICE)
        s->placement.update_on_host = 0;
    estimator_judge(e, &all);
    return all.excess <= 1;
}

/* Offers c with one class in the nearer tier for some layers, if memory is left. Numbers of layers: as many as leave room for the
 * start's fetching ahead, or half of those that fit; as many as the start has there; and more.
 * If all layers fit, half of the optimizer state is still offered: host and device then update at the same time, which estimates do not
 * show. */
static void offer_with(const struct pool *pool, struct pool_grid *g, const struct start *from, const struct candidate *none,
                       struct moves *list)
{
    const struct estimator *e = g->tried.estimator;
    const struct strategy *s = &from->best->strategy;
    struct candidate c = *none;
    int64_t layers = strategy_promotable_layers(&none->strategy, pool->problem.model->config.layers);
    c.strategy.placement.promoted_layers = (int)layers;
    estimator_judge(e, &c);
    int64_t most = promotable_layers(pool, none, &c, (int64_t[TIERS]){0}), least = promotable_layers(pool, none, &c, from->ahead);
    if (most <= 0)
        return;
    int alike = s->placement.promoted_layers > 0 && s->placement.promoted_class == c.strategy.placement.promoted_class &&
                s->placement.promote_tier == c.strategy.placement.promote_tier;
    int wholly = most == layers && may_promote_in_all(e, &c), both = strategy_updates_on_both(&c.strategy);
    int64_t some = least > 0 ? least : (most + 1) / 2;
    if (wholly)
        some = both ? (most + 1) / 2 : 0;
    const int64_t n[] = {some, alike && s->placement.promoted_layers <= most ? s->placement.promoted_layers : 0,
                         alike && !wholly && s->placement.promoted_layers < most ? (s->placement.promoted_layers + most + 1) / 2
                                                                                 : 0};
    enum { NUMBERS = sizeof n / sizeof *n };
    for (int i = 0; i < NUMBERS; i++) {
        if (n[i] == 0)
            continue;
        c.strategy.placement.promoted_layers = (int)n[i];
        estimator_judge(e, &c);
        if (alike || both || c.estimate < MOVE_BELOW * none->estimate)
            offer_move(pool, g, from, &c, list);
    }
}

/* Offers c with one class at a time in the nearer tier. On other grids than the best placement's, only the class that the best
 * placement has in its nearer tier is offered. */
static void offer_promoted(const struct pool *pool, struct pool_grid *g, const struct start *from, const struct candidate *c,
                           struct moves *list)
{
    const struct strategy *s = &from->best->strategy;
    const int other = !strategy_same_grid(&g->fixed, s);
    for (int class = CLASS_PARAM; class <= CLASS_ACT; class ++)
        for (int at = RES_DEVICE; at < RES_NVME; at++) {
            struct candidate none = *c;
            if (other && (s->placement.promoted_layers == 0 || (int)s->placement.promoted_class != class ||
                          (int)s->placement.promote_tier != at))
                continue;
            none.strategy.placement.promoted_class = (enum tensor_class) class;
            none.strategy.placement.promote_tier = (enum residency)at;
            if (options_may_promote(estimator_options(g->tried.estimator), &c->strategy, none.strategy.placement.promoted_class,
                                    none.strategy.placement.promote_tier))
                offer_with(pool, g, from, &none, list);
        }
}

/* Offers the start's placement with up to MOVE_DISTANCE other choices, on one grid: with as large a share of chunks kept, with as
 * many as ought to fit, and with numbers in between. */
static void offer_moves(const struct pool *pool, struct pool_grid *g, const struct start *from, struct moves *list)
{
    const struct search *x = &g->tried;
    const struct options *o = estimator_options(x->estimator);
    const struct strategy *best = &from->best->strategy;
    int high = options_most_kept(o), low = moves_fewest_kept(g), share = moves_share_kept(g, best);
    enum { SHARE, MOST, MORE, NEXT, FEWER, WAYS };
    const int kept[WAYS] = {[SHARE] = share,
                            [MOST] = low,
                            [MORE] = (share + high) / 2,
                            [NEXT] = (int)min_i64(high, share + (high + 7) / 8),
                            [FEWER] = (low + share) / 2};
    for (int i = 0; i < options_count(o); i += o->n[DECISION_KEPT_CHUNKS]) {
        struct candidate c = {.strategy = g->fixed};
        options_place(o, i, &c.strategy);
        if (decisions_distance(&c.strategy, best) > MOVE_DISTANCE ||
            (pool->allowed == POOL_FINE_GRIDS && tiles_are_coarse(&c.strategy) &&
             g->fixed.key.row_chunk > pool->fixed.key.row_chunk))
            continue;
        for (int k = 0; k < WAYS; k++) {
            c.strategy.placement.kept_chunks = kept[k];
            estimator_judge(x->estimator, &c);
            if (k == MOST && c.excess <= 1)
                search_keep_most(x, high, &c);
            offer_move(pool, g, from, &c, list);
            if (k == SHARE && c.excess <= 1)
                offer_promoted(pool, g, from, &c, list);
        }
    }
}

/* Offers moves on the grid that `like` has. */
static enum status look_on_grid(struct pool *pool, const struct strategy *like, const struct start *from, struct moves *list)
{
    const struct plan_request *s = &pool->problem.request;
    struct pool_grid *g;
    TRY(pool_open(pool, like, &g));
    if (g && !g->large && plan_alpha_error(s, &g->fixed) <= plan_alpha_error(s, &pool->fixed))
        offer_moves(pool, g, from, list);
    return OK;
}

static enum status start_from(struct pool *pool, const struct candidate *best, enum move_by by, struct start *out)
{
    struct candidate judged = *best;
    struct pool_grid *g;
    *out = (struct start){.best = best, .by = by};
    TRY(pool_open(pool, &best->strategy, &g));
    if (!g)
        return OK;
    if (best->strategy.placement.device_chunks > 0)
        TRY(estimator_split(g->tried.estimator));
    estimator_judge(g->tried.estimator, &judged);
    for (int t = 0; t < TIERS; t++)
        out->ahead[t] = max_i64(0, best->bytes[t] - judged.bytes[t]);
    return OK;
}

enum status moves_find(struct pool *pool, const struct candidate *best, enum move_by by, struct moves *list)
{
    struct start from;
    list->n = 0;
    TRY(start_from(pool, best, by, &from));
    TRY(look_on_grid(pool, &best->strategy, &from, list));
    for (int i = 0; pool->allowed != POOL_GIVEN_GRIDS && i < PLAN_NEAR_TILES; i++) {
        struct strategy near = best->strategy;
        if (plan_near_tiles(pool->problem.model, &pool->problem.request, i, &near))
            TRY(look_on_grid(pool, &near, &from, list));
    }
    return OK;
}
