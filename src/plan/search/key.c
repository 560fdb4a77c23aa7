/* The mesh's degrees, the ZeRO stage and the grid of tiles, by estimate and trial. */
#include "plan/search/key.h"

#include "base/hurry.h"
#include "base/sys.h"
#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/lower/mesh.h"
#include "plan/search/local.h"
#include "plan/search/price.h"
#include "plan/search/search.h"
#include "plan/search/start.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>

/* ZeRO stages, from the one that partitions the most. */
static const int stages[] = {3, 2, 1};
enum { STAGES = sizeof stages / sizeof *stages };

/* State of a search: the best key so far with its placements, and the trial of the best of these. */
struct key_search {
    struct start from;
    struct plan_request given; /* with the mesh that was chosen */
    int zero_is_open;
    struct meshes meshes; /* the meshes that the request left open */
    struct searched *best;
    struct candidate candidate;
    int tried;            /* 1: `candidate` is known */
    double default_price; /* price on the default grid; INFINITY: not known */
    struct pool *pool;    /* collects trials; or NULL */
    double spent;         /* instructions scheduled while comparing grids briefly */
    int trials;           /* number of placements tried, without those of local search */
};

static enum status try_best(struct key_search *b)
{
    if (!b->tried)
        TRY(start_best(b->best, &b->candidate));
    b->tried = 1;
    return OK;
}

/* Returns the gain that c needs over `all`: larger if `all` was tried on all layers, and c on only a few. */
static double sure_gain(const struct candidate *all, const struct candidate *c, double gain)
{
    return all->all_layers && !c->all_layers ? fmax(gain, FEW_LAYERS_MISS) : gain;
}

/* Keeps the better one of the best so far and *next, and leaves the worse one in *next. */
static enum status replace_if_better(struct key_search *b, double gain, struct searched **next)
{
    struct candidate c = {.excess = INFINITY};
    const struct candidate *old = &b->candidate;
    if ((*next)->search.n == 1 || (*next)->search.n_tried > 0)
        TRY(start_best(*next, &c));
    if (old->excess <= 1 ? c.excess > 1 || candidate_price(&c) >= (1 - sure_gain(old, &c, gain)) * candidate_price(old)
                         : c.excess >= old->excess)
        return OK;
    struct searched *worse = b->best;
    b->best = *next;
    b->candidate = c;
    *next = worse;
    return OK;
}

/* Searches request s, unless compute alone takes about as long as the best so far, and keeps the result if it is better. */
static enum status compare(struct key_search *b, const struct plan_request *s)
{
    struct searched *next;
    const struct candidate *c = &b->candidate;
    if (c->excess <= 1 && (hurry_asked() || c->compute >= (1 - SEARCH_GAIN) * candidate_price(c)))
        return OK;
    const struct search_lead lead = {.beat = c, .gain = SEARCH_GAIN};
    TRY(start_create(&b->from, s, NULL, &lead, &next));
    b->trials += next->search.n_tried;
    enum status st = replace_if_better(b, SEARCH_GAIN, &next);
    start_destroy(next);
    return st;
}

enum status key_search_stage(struct key_search *b)
{
    struct plan_request s;
    if (!b->zero_is_open || b->best->fixed.ranks == 1)
        return OK;
    TRY(try_best(b));
    s = b->best->problem.request;
    for (int i = 1; i < STAGES; i++) {
        s.zero = stages[i];
        TRY(compare(b, &s));
    }
    return OK;
}

/* A grid, and the best placement that was found on it. */
struct point {
    struct strategy grid;
    struct candidate candidate;
};

/* Searches the grid of `at`; a result that is faster by `gain` becomes the best (*taken = 1). */
static enum status compare_grid(struct key_search *b, const struct point *at, double gain, int *taken)
{
    struct searched *next, *old = b->best;
    const struct search_lead lead = {&b->candidate, gain, &old->search, &at->candidate};
    TRY(start_create(&b->from, &old->problem.request, &at->grid, &lead, &next));
    b->trials += next->search.n_tried;
    next->large = old->large;
    enum status st = b->pool ? pool_add_search(b->pool, &at->grid, &next->search) : OK;
    if (st == OK)
        st = replace_if_better(b, gain, &next);
    *taken = b->best != old;
    start_destroy(next);
    return st;
}

/* Tells whether activations would travel in too few chunks, and in fewer than on the default grid. Trials of a few layers do not
 * show the cost of this on slow links. */
static int is_coarser(const struct searched *v, const struct strategy *s)
{
    return v->large && s->key.row_chunk > v->default_grid.key.row_chunk && tiles_are_coarse(s);
}

/* Tries another value of one size, and moves the point there if that is faster (*moved = 1). */
static enum status step(struct key_search *b, enum tile_size which, int i, struct point *at, int *moved)
{
    const struct searched *v = b->best;
    struct point other = {.grid = at->grid};
    double gain = GRID_STEP_GAIN * start_grid_gain(&v->problem.request);
    *moved = 0;
    if (b->spent > GRID_STEP_INSTRS || hurry_asked() ||
        !plan_other_tiles(v->problem.model, &v->problem.request, which, i, &other.grid))
        return OK;
    const struct search_lead lead = {.beat = &at->candidate, .gain = gain, .known = &v->search};
    TRY(search_briefly(&v->problem, &other.grid, &lead, &b->spent, &other.candidate));
    const struct candidate *c = &other.candidate;
    *moved = c->tried && c->excess <= 1 && !is_coarser(v, &c->strategy) &&
             candidate_price(c) < (1 - sure_gain(&at->candidate, c, gain)) * candidate_price(&at->candidate);
    if (*moved)
        *at = other;
    return OK;
}

/* Steps in one size of the grid as long as steps are faster: heads only up, rows down or up, loss tiles by the largest step
 * first, since the default one is short. *moved: 1 if any step was taken. */
static enum status vary_size(struct key_search *b, enum tile_size which, struct point *at, int *moved)
{
    static const int first[TILE_SIZES] = {[TILE_HEADS] = 0, [TILE_ROWS] = 1, [TILE_LOSS] = 2};
    int faster = 1;
    *moved = 0;
    while (faster) {
        faster = 0;
        for (int i = first[which]; i >= 0 && !faster; i--)
            TRY(step(b, which, i, at, &faster));
        *moved |= faster;
    }
    return OK;
}

/* Steps from the best placement's grid in one size after the other, until no step is faster; then searches the grid found in full
 * and goes on from its best placement. */
static enum status step_from_best(struct key_search *b)
{
    double gain = start_grid_gain(&b->best->problem.request), start = candidate_price(&b->candidate);
    for (int round = 0, taken = 1; taken && round < GRID_ROUNDS; round++) {
        struct point at = {b->best->fixed, b->candidate};
        at.grid.placement.keep_inputs = b->candidate.strategy.placement.keep_inputs;
        for (int which = 0, still = 0, moved; still < TILE_SIZES; which = (which + 1) % TILE_SIZES) {
            TRY(vary_size(b, (enum tile_size)which, &at, &moved));
            still = moved ? 1 : still + 1;
        }
        taken = 0;
        if (candidate_price(&at.candidate) >= (1 - gain) * start ||
            (strategy_same_grid(&at.grid, &b->best->fixed) && candidate_price(&at.candidate) >= candidate_price(&b->candidate)))
            return OK;
        TRY(compare_grid(b, &at, round == 0 ? gain : GRID_STEP_GAIN * gain, &taken));
    }
    return OK;
}

static int other_grids(const struct searched *v)
{
    struct strategy t = v->fixed;
    for (int which = 0; which < TILE_SIZES; which++)
        if (plan_other_tiles(v->problem.model, &v->problem.request, (enum tile_size)which, 0, &t))
            return 1;
    return 0;
}

/* Tries other grids, unless attention and products at their best rates take about as long as the step. */
static enum status compare_tiles(struct key_search *b)
{
    if (!other_grids(b->best))
        return OK;
    TRY(try_best(b));
    const struct candidate *c = &b->candidate;
    if (c->excess > 1 || c->least_compute >= (1 - start_grid_gain(&b->best->problem.request)) * candidate_price(c))
        return OK;
    return step_from_best(b);
}

/* Creates the pool of local search. With measured costs, where a new grid must gain more, local search stays on the grids that
 * earlier steps have found. */
static enum status start_pool(struct key_search *b)
{
    const struct searched *v = b->best;
    if (v->search.n == 1)
        return OK;
    enum pool_grids grids = start_grid_gain(&v->problem.request) >= SEARCH_GAIN ? POOL_GIVEN_GRIDS
                            : v->large                                          ? POOL_FINE_GRIDS
                                                                                : POOL_ANY_GRIDS;
    TRY(pool_create(&v->problem, &v->default_grid, grids, &b->pool));
    return pool_add_search(b->pool, &v->fixed, &v->search);
}

/* Notes the price on the default grid, if the search starts from that grid and may leave it. */
static enum status note_default_grid(struct key_search *b)
{
    if (!strategy_same_grid(&b->best->fixed, &b->best->default_grid) || !other_grids(b->best))
        return OK;
    TRY(try_best(b));
    if (b->candidate.excess <= 1)
        b->default_price = candidate_price(&b->candidate);
    return OK;
}

/* Puts the cheapest trials of local search, from *best on, into the search at index `at`: 0, or 1 behind a candidate that
 * promises more after a trial of a few layers. */
static void put_found(struct key_search *b, const struct candidate *best, int at)
{
    struct candidate next[SEARCH_PUT] = {*best}; /* several, in case the first does not fit with all programs of the set */
    int n = 1;
    while (n < SEARCH_PUT && pool_next(b->pool, &next[n - 1], &next[n]))
        n++;
    while (n > 0)
        search_put(&b->best->search, at, &next[--n]);
}

/* Finds the default grid's price, if nothing was tried there: that of the best placement moved to that grid. If the price is
 * lower by SEARCH_GAIN, searches that grid, too. */
static enum status price_default_grid(struct key_search *b)
{
    const struct searched *v = b->best;
    struct point at = {.grid = v->default_grid};
    int taken;
    if (isfinite(b->default_price) || strategy_same_grid(&v->fixed, &v->default_grid) || hurry_asked())
        return OK;
    TRY(try_best(b));
    at.grid.placement.keep_inputs = b->candidate.strategy.placement.keep_inputs;
    struct strategy like = at.grid;
    strategy_place(&like, &b->candidate.strategy);
    like.placement.kept_chunks = strategy_share(&like, &b->candidate.strategy);
    TRY(search_price(&v->problem, &like, &at.candidate));
    if (at.candidate.excess > 1)
        return OK;
    b->default_price = candidate_price(&at.candidate);
    double gain = sure_gain(&b->candidate, &at.candidate, SEARCH_GAIN);
    return b->default_price < (1 - gain) * candidate_price(&b->candidate) ? compare_grid(b, &at, SEARCH_GAIN, &taken) : OK;
}

/* Runs local search from the best placement so far; its grid becomes that of the key. */
static enum status search_locally(struct key_search *b)
{
    struct searched *v = b->best;
    TRY(try_best(b));
    struct candidate best = b->candidate;
    double waits = v->problem.request.effort == EFFORT_BEST ? LOCAL_WAITS : LOCAL_WAITS_NORMAL;
    if (best.excess > 1 || best.seconds < waits * best.least_compute)
        return OK;
    TRY(local_search(b->pool, &best));
    b->default_price = fmin(b->default_price, pool_price_on(b->pool, &v->default_grid));
    int better = candidate_price(&best) < candidate_price(&b->candidate), known = pool_knows(b->pool, &b->candidate);
    if (best.excess > 1 || (known && b->candidate.all_layers && !better))
        return OK;
    put_found(b, &best, !better && !known);
    if (better || known) {
        b->candidate = best;
        strategy_take_grid(&v->fixed, &best.strategy);
    }
    return OK;
}

enum status key_search_start(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int finer,
                             struct key_search **out)
{
    struct key_search *b = sys_calloc(1, sizeof *b);
    if (!b)
        return status_no_memory("while planning");
    *b = (struct key_search){.from = {m, limit, finer}, .given = *s, .zero_is_open = s->zero == AUTO, .default_price = INFINITY};
    b->given.zero = b->zero_is_open ? stages[0] : s->zero;
    enum status st = meshes_choose(&b->from, &b->given, &b->meshes, &b->best, &b->trials);
    if (st != OK) {
        free(b);
        return st;
    }
    *out = b;
    return OK;
}

enum status key_search_grid(struct key_search *b)
{
    struct searched *brief = b->best;
    if (brief && b->given.effort == EFFORT_QUICK)
        return OK;
    b->best = NULL;
    start_destroy(brief);
    TRY(start_create(&b->from, &b->given, NULL, &(struct search_lead){0}, &b->best));
    b->trials += b->best->search.n_tried;
    TRY(try_best(b));
    for (int i = 0; i < b->meshes.n && b->candidate.excess > 1; i++) {
        struct plan_request s = b->given;
        if (b->meshes.of[i].seconds > 0 ||
            (mesh_equal(&b->meshes.of[i].mesh, &s.mesh) && b->meshes.of[i].packed == s.micro_batch))
            continue;
        plan_take_mesh(&s, &b->meshes.of[i].mesh, b->meshes.of[i].packed);
        TRY(compare(b, &s));
    }
    return OK;
}

/* Notes by how much the default grid is slower than the best one. */
static void note_default_price(struct key_search *b)
{
    b->best->default_slower = b->tried ? b->default_price / candidate_price(&b->candidate) - 1 : 0;
}

enum status key_search_tiles(struct key_search *b)
{
    TRY(start_pool(b));
    TRY(note_default_grid(b));
    TRY(compare_tiles(b));
    TRY(price_default_grid(b));
    note_default_price(b);
    return OK;
}

enum status key_search_local(struct key_search *b)
{
    enum status st = OK;
    if (b->pool) {
        int before = pool_trials(b->pool);
        st = search_locally(b);
        b->trials += pool_trials(b->pool) - before;
    }
    pool_destroy(b->pool);
    b->pool = NULL;
    note_default_price(b);
    return st;
}

const struct searched *key_search_best(const struct key_search *b)
{
    return b->best;
}

const struct meshes *key_search_meshes(const struct key_search *b)
{
    return &b->meshes;
}

int key_search_trials(const struct key_search *b)
{
    return b->trials;
}

void key_search_end(struct key_search *b)
{
    if (!b)
        return;
    pool_destroy(b->pool);
    start_destroy(b->best);
    free(b);
}
