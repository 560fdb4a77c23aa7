/* The mesh's degrees, the ZeRO stage and the grid of tiles, by estimate and trial. */
#include "plan/variants.h"

#include "base/sys.h"
#include "plan/hardware.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* What a second of messages costs compute, hidden or not: they take memory bandwidth and multiprocessors (as in
 * seqpar/degrees.c). */
#define CONTENTION 0.25

/* What another grid is to gain: so much that the key does not follow a profile's noise, and of data sheets, which have none, what
 * a search gives for less traffic. */
#define MEASURED_GAIN 0.03
#define TILES_GAIN 0.003
/* And a single size, by estimate. */
#define SIZE_GAIN 0.005
/* And a larger size of a grid that has been taken, when the key is not the usual one any more. */
#define WIDER_GAIN 0.002

/* Stages by what is partitioned, most first. */
static const int stages[] = {3, 2, 1};
enum { STAGES = sizeof stages / sizeof *stages };

/* On the usual grid, or (not NULL) on another one; what it is to gain over `beat`, or NULL. */
static enum status variant_create(const struct model *m, const struct settings *s, const int64_t limit[TIERS],
                                  const struct strategy *grid, const struct candidate *beat, double gain,
                                  const struct search *known, struct variant **out)
{
    struct variant *v = sys_calloc(1, sizeof *v);
    if (!v)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    v->s = *s;
    plan_cost_model(&v->s, &v->cost);
    enum status st = plan_fixed(m, &v->s, &v->usual);
    v->fixed = grid ? *grid : v->usual;
    if (st == OK)
        st = search_to_beat(m, &v->s, &v->fixed, &v->cost, limit, beat, gain, known, &v->search);
    if (st != OK) {
        free(v);
        return st;
    }
    *out = v;
    return OK;
}

void variant_destroy(struct variant *v)
{
    if (v)
        search_destroy(&v->search);
    free(v);
}

/* The best placement's trial; of a single one, which the search does not try, here. */
static enum status best_of(const struct model *m, const struct variant *v, const int64_t limit[TIERS], struct candidate *out)
{
    *out = v->search.candidates[0];
    return v->search.n > 1 ? OK : search_price(m, &v->s, &out->strategy, &v->cost, limit, out);
}

static double weighed(const struct candidate *c)
{
    return c->seconds + CONTENTION * c->messages;
}

/* The best variant so far, and its trial. */
struct best {
    const struct model *m;
    const int64_t *limit;
    struct variant *variant;
    struct candidate candidate;
    int tried; /* candidate is known */
};

static enum status try_best(struct best *b)
{
    if (!b->tried)
        TRY(best_of(b->m, b->variant, b->limit, &b->candidate));
    b->tried = 1;
    return OK;
}

/* Leaves the worse one in *next. */
static enum status replace_if_better(struct best *b, double gain, struct variant **next)
{
    struct candidate c = {.excess = INFINITY};
    const struct candidate *old = &b->candidate;
    if ((*next)->search.n == 1 || (*next)->search.n_tried > 0)
        TRY(best_of(b->m, *next, b->limit, &c));
    if (old->excess <= 1 ? c.excess > 1 || weighed(&c) >= (1 - gain) * weighed(old) : c.excess >= old->excess)
        return OK;
    struct variant *worse = b->variant;
    b->variant = *next;
    b->candidate = c;
    *next = worse;
    return OK;
}

/* Takes the place of the best one if it is better; not looked at where compute alone takes about as long. */
static enum status compare(struct best *b, const struct settings *s)
{
    struct variant *next;
    const struct candidate *c = &b->candidate;
    if (c->excess <= 1 && c->compute >= (1 - SEARCH_GAIN) * weighed(c))
        return OK;
    TRY(variant_create(b->m, s, b->limit, NULL, c, SEARCH_GAIN, NULL, &next));
    enum status st = replace_if_better(b, SEARCH_GAIN, &next);
    variant_destroy(next);
    return st;
}

static enum status compare_degrees(struct best *b, const struct settings *given)
{
    struct settings s = *given;
    for (int i = 0; plan_other_degrees(b->m, given, i, &s.ulysses, &s.ring); i++)
        TRY(compare(b, &s));
    return OK;
}

static enum status compare_stages(struct best *b)
{
    struct settings s = b->variant->s;
    for (int i = 1; i < STAGES; i++) {
        s.zero = stages[i];
        TRY(compare(b, &s));
    }
    return OK;
}

/* Open where the class is in two tiers. */
static enum offload offload_of(const struct strategy *s, enum tensor_class class)
{
    enum residency r = strategy_tier(s, class);
    if (s->nearer > 0 && s->nearer_class == class)
        return OFFLOAD_AUTO;
    return r == RES_DEVICE ? OFFLOAD_NONE : r == RES_HOST ? OFFLOAD_CPU : OFFLOAD_NVME;
}

/* Tries e on its grid; where it is no faster than `seconds`, c's placement there, too. */
static enum status try_wider(const struct best *b, const struct settings *s, const struct candidate *c, double seconds,
                             struct candidate *e)
{
    struct strategy tried = e->strategy, other = c->strategy;
    TRY(search_price(b->m, s, &tried, &b->variant->cost, b->limit, e));
    other.head_tile = tried.head_tile;
    if (c->whole && (e->excess > 1 || weighed(e) >= (1 - SIZE_GAIN) * seconds))
        TRY(search_price(b->m, s, &other, &b->variant->cost, b->limit, e));
    return OK;
}

/* Of one size of the grid the value with which a step is reckoned to be the fastest (*seconds): with each class where the best
 * placement has it, as many activations kept as fit, and the stalls of c, which becomes the best one tried. */
static enum status choose_size(const struct best *b, const struct settings *s, enum tile_size which, struct strategy *grid,
                               struct candidate *c, double *seconds)
{
    double rate = (c->seconds - c->estimate) / fmax(c->traffic, 1e-9);
    struct strategy other, best = *grid;
    for (int i = 0; other = *grid, plan_other_tiles(b->m, s, which, i, &other); i++) {
        struct candidate e;
        TRY(search_expect(b->m, s, &other, &b->variant->cost, b->limit, rate, &e));
        if (e.excess > 1 || weighed(&e) >= (1 - SIZE_GAIN) * *seconds)
            continue;
        if (which == TILE_HEADS) { /* the wider, the less there is to overlap with, which estimates do not see */
            TRY(try_wider(b, s, c, *seconds, &e));
            if (e.excess > 1 || weighed(&e) >= (1 - SIZE_GAIN) * *seconds)
                break;
            *c = e;
        }
        *seconds = weighed(&e);
        best = other;
    }
    *grid = best;
    return OK;
}

/* The best variant on another grid takes its place (*taken) if it is faster by `gain`. */
static enum status compare_grid(struct best *b, const struct strategy *grid, double gain, int *taken)
{
    struct variant *next, *old = b->variant;
    double usual = (1 + old->usual_slower) * weighed(&b->candidate);
    TRY(variant_create(b->m, &old->s, b->limit, grid, &b->candidate, gain, &old->search, &next));
    enum status st = replace_if_better(b, gain, &next);
    *taken = b->variant != old;
    if (*taken)
        b->variant->usual_slower = usual / weighed(&b->candidate) - 1;
    variant_destroy(next);
    return st;
}

/* Of a grid that has been taken, each size larger as long as that is faster: it was estimated at the placement of the usual grid,
 * which may not have had the memory. */
static enum status compare_wider(struct best *b)
{
    static const enum tile_size sizes[] = {TILE_HEADS, TILE_LOSS};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const struct strategy from = b->variant->fixed;
        struct strategy other = from;
        int faster = 1;
        for (int i = 0; faster && plan_other_tiles(b->m, &b->variant->s, sizes[k], i, &other); i++, other = from)
            TRY(compare_grid(b, &other, WIDER_GAIN, &faster));
    }
    return OK;
}

static int other_grids(const struct model *m, const struct variant *v)
{
    struct strategy t = v->fixed;
    for (int which = 0; which < TILE_SIZES; which++)
        if (plan_other_tiles(m, &v->s, (enum tile_size)which, 0, &t))
            return 1;
    return 0;
}

double variant_grid_gain(const struct settings *s)
{
    return s->hardware && !s->hardware->cpu ? TILES_GAIN : MEASURED_GAIN;
}

/* One size after the other by estimate, and the grid of them all by a search. Not looked at where attention, and products at
 * their best, take about as long. */
static enum status compare_tiles(struct best *b)
{
    struct settings s = b->variant->s;
    double gain = variant_grid_gain(&s);
    if (!other_grids(b->m, b->variant))
        return OK;
    TRY(try_best(b));
    const struct candidate *c = &b->candidate;
    double seconds = weighed(c);
    struct candidate reference = *c; /* whose stalls are expected of others */
    struct strategy grid = b->variant->fixed;
    if (c->excess > 1 || c->least_compute >= (1 - gain) * seconds)
        return OK;
    s.params = offload_of(&c->strategy, CLASS_PARAM);
    s.grads = offload_of(&c->strategy, CLASS_GRAD);
    s.optim = offload_of(&c->strategy, CLASS_OPTIM);
    s.update = c->strategy.update_on_host ? UPDATE_HOST : UPDATE_DEVICE;
    grid.input_every = c->strategy.input_every;
    for (int which = 0; which < TILE_SIZES; which++)
        TRY(choose_size(b, &s, (enum tile_size)which, &grid, &reference, &seconds));
    grid.input_every = b->variant->fixed.input_every;
    if (seconds >= (1 - gain) * weighed(c))
        return OK;
    int taken;
    TRY(compare_grid(b, &grid, gain, &taken));
    return taken && b->candidate.whole ? compare_wider(b) : OK; /* trials of fewer layers are not as exact */
}

enum status variant_choose(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct variant **out)
{
    struct settings given = *s;
    struct best b = {.m = m, .limit = limit};
    int ulysses, ring, mesh = plan_other_degrees(m, s, 0, &ulysses, &ring);
    given.zero = s->zero == AUTO ? stages[0] : s->zero;
    TRY(variant_create(m, &given, limit, NULL, NULL, 0, NULL, &b.variant));
    int stage = s->zero == AUTO && b.variant->fixed.ranks > 1;
    enum status st = mesh || stage ? try_best(&b) : OK;
    if (st == OK && mesh)
        st = compare_degrees(&b, &given);
    if (st == OK && stage)
        st = compare_stages(&b);
    if (st == OK)
        st = compare_tiles(&b);
    if (st == OK)
        *out = b.variant;
    else
        variant_destroy(b.variant);
    return st;
}
