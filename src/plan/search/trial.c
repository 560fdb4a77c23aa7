/* The most promising placements on the virtual clock. */
#include "plan/search/trials.h"

#include "base/parallel.h"
#include "plan/schedule/order.h"
#include "plan/schedule/prefetch.h"
#include "program/drives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FASTER 0.998 /* than the best one so far: what is expected to take longer is not tried */
#define MOST_TRIES 32
#define FEWEST_TRIES 4   /* what a single one shows of stalls need not hold for others */
#define FEWEST_TO_BEAT 2 /* where another grid's have shown them */
#define BRIEF_TRIES 4    /* where a step from one grid to the next is tried */
#define MORE_TRIES 8     /* of those that write to drives, whose stalls differ more */
/* Those within this share of the best one are tried at shorter distances, too (some paces further, and FIT_LATE): where drives
 * read and write at once, fetching late was up to 7% faster until 008c5c6, and is 1% since (row 8 of
 * bench/results/2026-11-23-search-vs-random.txt). */
#define CLOSE 1.01
#define SHORTER 3 /* paces further */
/* Blocks of writes in flight beside reads: half a lane's window is what memory mostly has room for, a quarter lets reads have
 * nearly all of the drives. */
#define WRITES_YIELD (DRIVE_DEPTH / 2)
#define WRITES_LAST (DRIVE_DEPTH / 4)
#define TIGHT 0.98          /* excess from which on a trial that fits may not fit with all programs of the set */
#define LATE_HELPS 1.01     /* where compute waits for less, fetching later does not help */
#define YIELDING_HELPS 1.01 /* where compute waits for less, writes to drives do not hold it up */
/* So many of the leanest placements are tried where those that ought to fit do not: what classes need at different moments was
 * added up. */
#define HOPELESS_TRIES 4
#define HOPELESS 1.1          /* excess at which the leanest one's is final */
#define HOPELESS_SERIALLY 1.2 /* trials in the serial order are quicker */

enum status search_shortened(const struct model *m, const struct plan_request *s, int64_t layers, struct model **out)
{
    struct model_config c = m->config;
    c.layers = layers;
    return model_create(&c, (const char *const *)s->freeze.item, s->freeze.n, out);
}

double search_excess(const int64_t bytes[TIERS], const int64_t limit[TIERS])
{
    double most = 0;
    for (int t = 0; t < TIERS; t++)
        most = fmax(most, (double)bytes[t] / (double)max_i64(limit[t], 1));
    return most;
}

enum tier search_scarce(const int64_t bytes[TIERS], const int64_t limit[TIERS])
{
    int t = 0;
    while (t < TIER_NVME && (double)bytes[t] / (double)max_i64(limit[t], 1) < search_excess(bytes, limit))
        t++;
    return (enum tier)t;
}

/* Layers that a trial needs: those that stay on the device, as many others as differ, and the first and the last one. */
static int64_t trial_layers(const struct trials *x, const struct candidate *c)
{
    int64_t period = c->strategy.input_every, n = c->strategy.device_layers + 2 + period, layers = x->m->config.layers;
    return 2 * n - period >= layers || x->search->whole ? layers : n;
}

double trial_instrs(const struct trials *x, const struct candidate *c)
{
    int64_t n = trial_layers(x, c);
    double all, layer;
    estimator_instrs(x->search->estimator, &all, &layer);
    return n == x->m->config.layers ? all : (c->strategy.nearer > 0 ? 2 : 1) * layer * (double)(2 * n - c->strategy.input_every);
}

/* A model of so many layers on the virtual clock, at a pace or below. */
struct scheduled {
    const struct trials *trials;
    const struct strategy *strategy;
    int64_t layers, limit[TIERS];
    int without_update; /* the step's program, not that of an update and a step */
    int pace;           /* that was found */
    double seconds, slow;
    int64_t arena[TIERS];
};

/* The first program of the set. */
static enum status schedule_layers(void *job)
{
    struct scheduled *out = job;
    const struct trials *x = out->trials;
    struct model *m;
    struct program *p = NULL;
    struct io_buffers io;
    struct cost_model slow;
    struct strategy s = *out->strategy;
    int role = ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | (x->s->grad_accum == 1 ? ROLE_LAST : 0);
    role |= out->without_update ? 0 : ROLE_UPDATE;
    s.nearer = (int)(s.nearer * out->layers / x->m->config.layers); /* the same share */
    TRY(search_shortened(x->m, x->s, out->layers, &m));
    enum status st;
    if (out->pace == FIT_SERIAL) { /* seconds mean nothing */
        st = fit_serially(m, &s, role, out->arena);
        goto done;
    }
    TRY_GOTO(fit_program(m, &s, x->cost, role, out->limit, x->slack, x->last ? x->last : FIT_SERIAL, &out->pace, &io, &p), done);
    out->seconds = out->slow = p->seconds;
    memcpy(out->arena, p->arena, sizeof out->arena);
    if (isinf(p->seconds))
        goto done;
    cost_with_links(x->cost, FIT_SLOW, &slow);
    st = schedule_simulate(p, &slow, &out->slow);
done:
    program_destroy(p);
    model_destroy(m);
    return st;
}

static void conclude(const struct trials *x, struct candidate *c, const struct scheduled *whole)
{
    int64_t more = x->m->config.layers - whole->layers;
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = whole->arena[t] + more * c->layer_bytes[t];
    c->pace = whole->pace;
    c->excess = search_excess(c->bytes, x->limit);
    c->tried = 1;
    c->whole = more == 0;
}

/* What so many layers may take: the limits without what the others of the model `of` need, where these layers may need more than
 * its own do. */
static void limit_layers(const struct trials *x, const struct candidate *c, const struct candidate *of, int64_t layers,
                         int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        out[t] = x->limit[t] - x->m->config.layers * of->layer_bytes[t] + layers * c->layer_bytes[t];
}

/* Bytes alone. Where layers take turns, what one more needs is the difference between two trials that both have a turn of layers
 * whose inputs are computed again: the estimator's shorter model has none, so that what such a turn needs once counted with every
 * one. */
static enum status trial_serially(const struct trials *x, struct candidate *c)
{
    int64_t layers = x->m->config.layers, period = c->strategy.input_every, n = trial_layers(x, c);
    n += (layers - n) % period; /* whole turns are left */
    int two = period > 1 && n + period <= layers;
    struct scheduled models[2] = {
        {.trials = x, .strategy = &c->strategy, .layers = two ? n + period : n, .pace = FIT_SERIAL},
        {.trials = x, .strategy = &c->strategy, .layers = n, .pace = FIT_SERIAL},
    };
    TRY(parallel_run(schedule_layers, models, sizeof *models, 1 + two));
    for (int t = 0; two && t < TIERS; t++)
        c->layer_bytes[t] = (models[0].arena[t] - models[1].arena[t]) / period;
    conclude(x, c, &models[0]);
    c->seconds = c->slow = c->estimate;
    return OK;
}

/* Where that fits just so, the first step's program need not, which may be packed less well. */
static enum status also_without_update(const struct trials *x, struct candidate *c, const struct scheduled *tried)
{
    struct scheduled step = *tried;
    step.without_update = 1;
    TRY(schedule_layers(&step));
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = max_i64(c->bytes[t], step.arena[t]);
    c->excess = search_excess(c->bytes, x->limit);
    return OK;
}

/* As a part of the model `of`. */
static enum status trial_as_part(const struct trials *x, struct candidate *c, int pace, const struct candidate *of)
{
    int64_t n = trial_layers(x, c), more = x->m->config.layers - n, period = c->strategy.input_every;
    int two = more > 0;
    double micro_batches = (double)x->s->grad_accum, periods = (double)more / (double)period;
    struct scheduled models[2] =
        {{.trials = x, .strategy = &c->strategy, .layers = n, .pace = pace},
         {.trials = x, .strategy = &c->strategy, .layers = n - period, .limit = {INT64_MAX, INT64_MAX, INT64_MAX}, .pace = pace}},
                     *whole = &models[0], *shorter = &models[1];
    limit_layers(x, c, of, n, whole->limit);
    TRY(parallel_run(schedule_layers, models, sizeof *models, 1 + two));
    c->seconds = whole->seconds;
    c->slow = whole->slow;
    if (two && shorter->pace != whole->pace) {
        shorter->pace = whole->pace;
        TRY(schedule_layers(shorter));
    }
    if (two) {
        c->seconds += periods * (whole->seconds - shorter->seconds);
        c->slow += periods * (whole->slow - shorter->slow);
    }
    conclude(x, c, whole);
    c->seconds = fmax(c->estimate, c->seconds * micro_batches);
    c->slow = fmax(c->seconds, c->slow * micro_batches);
    return two || c->excess > 1 || c->excess <= TIGHT ? OK : also_without_update(x, c, whole);
}

/* Too few layers to hold the share of a model's that have a class nearer: between those of which all have, and none. */
static enum status trial_nearer(const struct trials *x, struct candidate *c, int pace)
{
    int64_t layers = x->m->config.layers, all = strategy_nearer_layers(&c->strategy, layers);
    double share = fmin(1, c->strategy.nearer / (double)all);
    struct candidate none = *c, every = *c;
    none.strategy.nearer = 0;
    every.strategy.nearer = (int)all;
    estimator_judge(x->search->estimator, &none);
    estimator_judge(x->search->estimator, &every);
    TRY(trial_as_part(x, &none, pace, c));
    TRY(trial_as_part(x, &every, pace, c));
    c->seconds = fmax(c->estimate, (1 - share) * none.seconds + share * every.seconds);
    c->slow = fmax(c->seconds, (1 - share) * none.slow + share * every.slow);
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = (int64_t)((1 - share) * (double)none.bytes[t] + share * (double)every.bytes[t]);
    c->excess = search_excess(c->bytes, x->limit);
    c->pace = none.pace > every.pace ? none.pace : every.pace;
    c->tried = 1;
    c->whole = 0;
    return OK;
}

/* Seconds only if a pace is given that is not serial. */
enum status trial_run(const struct trials *x, struct candidate *c, int pace)
{
    if (pace == FIT_SERIAL)
        return trial_serially(x, c);
    return c->strategy.nearer > 0 && trial_layers(x, c) < x->m->config.layers ? trial_nearer(x, c, pace)
                                                                              : trial_as_part(x, c, pace, c);
}

int search_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int fx = x->excess <= 1, fy = y->excess <= 1;
    if (fx != fy)
        return fy - fx;
    double kx = fx ? floor(1000 * log(x->seconds)) : x->excess, ky = fx ? floor(1000 * log(y->seconds)) : y->excess;
    if (kx == ky) {
        kx = x->traffic;
        ky = y->traffic;
    }
    return kx != ky ? (kx < ky ? -1 : 1) : x->place - y->place;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;
    *a = *b;
    *b = kept;
}

#define AS_LEAN 1e-3 /* of one tier, which is all that the rest of the placements may have in common */

/* Which takes less of the scarcest tier; where that is the same, of all of them. */
static int is_leaner(const struct candidate *a, const struct candidate *b, const int64_t limit[TIERS])
{
    double of_a = 0, of_b = 0;
    if (fabs(a->excess - b->excess) > AS_LEAN * b->excess)
        return a->excess < b->excess;
    for (int t = 0; t < TIERS; t++) {
        of_a += (double)a->bytes[t] / (double)max_i64(limit[t], 1);
        of_b += (double)b->bytes[t] / (double)max_i64(limit[t], 1);
    }
    return of_a < of_b;
}

/* The leanest of those from the n-th on, until one fits or is far from it, at the given pace: of those as lean first the one that
 * keeps the most near, then those that need the least elsewhere, too. *out: how many were tried. */
static enum status try_leanest(const struct trials *t, struct search *x, int n, int pace, int *out)
{
    int first = n, end = (int)min_i64(x->n, n + HOPELESS_TRIES), settled = 0;
    double hopeless = pace == FIT_SERIAL ? HOPELESS_SERIALLY : HOPELESS;
    for (; n < end && !settled; n++) {
        int least = n;
        for (int i = n + 1; i < x->n; i++)
            if (n > first ? is_leaner(&x->candidates[i], &x->candidates[least], t->limit)
                          : x->candidates[i].excess < x->candidates[least].excess)
                least = i;
        swap(&x->candidates[n], &x->candidates[least]);
        TRY(trial_run(t, &x->candidates[n], pace));
        settled = x->candidates[n].excess <= 1 || x->candidates[n].excess > hopeless;
    }
    *out = n;
    return OK;
}

/* Seconds that one is expected to take, given the first so many of x. */
typedef double expectation(const struct search *x, int tried, const struct candidate *c);

/* Brings the candidate that ought to fit and is expected to be the fastest to place n. INFINITY: none ought to fit. */
static double bring_next(struct search *x, int n, expectation *expected)
{
    double least = INFINITY;
    int at = n;
    for (int i = n; i < x->n; i++) {
        const struct candidate *c = &x->candidates[i];
        if (c->excess > 1 || c->estimate >= least)
            continue;
        double seconds = expected(x, n, c);
        if (seconds < least) {
            least = seconds;
            at = i;
        }
    }
    struct candidate next = x->candidates[at];
    memmove(&x->candidates[n + 1], &x->candidates[n], (size_t)(at - n) * sizeof next);
    x->candidates[n] = next;
    return least;
}

/* Whether compute waits while drives are written. */
static int is_held_up(const struct candidate *c)
{
    return c->written > 0 && c->seconds > YIELDING_HELPS * c->compute;
}

/* Tries c otherwise, at c->late or a later pace, and keeps what is faster. */
static enum status try_instead(const struct trials *t, struct candidate *c, int write_depth, int pace, double *spent)
{
    struct candidate other = *c;
    other.strategy.write_depth = write_depth;
    *spent += trial_instrs(t, c);
    TRY(trial_run(t, &other, pace > c->late ? pace : c->late));
    if (other.excess <= 1 && search_cost(&other) < search_cost(c))
        *c = other;
    return OK;
}

/* Whether compute waits while the device has parameters that the host updates; settled by whole trials only. */
static int parameters_may_wait(const struct plan_request *s, const struct candidate *c)
{
    return c->whole && s->prefetch < 0 && s->params == OFFLOAD_AUTO && c->strategy.params == RES_DEVICE &&
           c->strategy.update_on_host && c->seconds > LATE_HELPS * c->compute;
}

/* With parameters on the host in place of the device: where the host updates them, they come from there in any case, and fetched
 * late they leave the link to what is needed sooner. */
static enum status try_parameters_late(const struct trials *t, struct candidate *c, double *spent)
{
    struct candidate other = *c;
    other.strategy.params = RES_HOST;
    estimator_judge(t->search->estimator, &other);
    if (other.excess > 1)
        return OK;
    *spent += trial_instrs(t, c);
    other.late = FIT_LATE;
    TRY(trial_run(t, &other, FIT_LATE));
    if (other.excess <= 1 && search_cost(&other) < search_cost(c))
        *c = other;
    return OK;
}

enum status trial_run_otherwise(const struct trials *t, struct candidate *c, double best, double *spent)
{
    if (c->excess > 1 || c->seconds > CLOSE * best)
        return OK;
    const int shorter = c->pace + SHORTER;
    c->otherwise = 1;
    if (t->s->prefetch < 0 && c->seconds > LATE_HELPS * c->compute)
        TRY(try_instead(t, c, c->strategy.write_depth, shorter, spent));
    if (t->s->prefetch < 0 && c->seconds > LATE_HELPS * c->compute && shorter < FIT_LATE)
        TRY(try_instead(t, c, c->strategy.write_depth, FIT_LATE, spent));
    if (is_held_up(c) && c->strategy.write_depth != WRITES_LAST)
        TRY(try_instead(t, c, WRITES_LAST, 0, spent));
    if (parameters_may_wait(t->s, c))
        TRY(try_parameters_late(t, c, spent));
    return OK;
}

static enum status try_otherwise(const struct trials *t, struct search *x, double best, double *spent)
{
    for (int i = 0; i < x->n_tried && *spent < SEARCH_INSTRS; i++)
        TRY(trial_run_otherwise(t, &x->candidates[i], best, spent));
    return OK;
}

/* Trials so far. */
struct trying {
    double best, spent; /* seconds; instructions */
    int fitted;
};

enum status trial_run_yielding(const struct trials *t, struct candidate *c, double best)
{
    TRY(trial_run(t, c, c->late));
    if (c->excess <= 1 && c->estimate < best && is_held_up(c) && c->strategy.write_depth == 0)
        TRY(try_instead(t, c, WRITES_YIELD, 0, &(double){0}));
    return OK;
}

static enum status try_next(const struct trials *t, struct candidate *c, struct trying *so_far)
{
    so_far->spent += trial_instrs(t, c);
    TRY(trial_run_yielding(t, c, so_far->best));
    if (c->excess > 1)
        return OK;
    so_far->fitted++;
    so_far->best = fmin(so_far->best, c->seconds);
    return OK;
}

/* Those that trials so far promise. *n: the number of trials. */
static enum status try_expected(const struct trials *t, struct search *x, struct trying *so_far, int *n)
{
    int fewest = x->brief ? 1 : isfinite(x->beat) ? FEWEST_TO_BEAT : FEWEST_TRIES;
    for (; *n < x->n && so_far->spent < 4 * SEARCH_INSTRS && !(x->brief && *n >= BRIEF_TRIES); ++*n) {
        double expected = *n < x->given ? 0 : bring_next(x, *n, stalls_expect), hopeless = FASTER * so_far->best;
        if (x->candidates[*n].written > 0 && so_far->fitted < MORE_TRIES && !isfinite(x->beat))
            hopeless = 1.01 * so_far->best;
        if (expected == INFINITY || (so_far->fitted > 0 && (so_far->fitted >= MOST_TRIES || so_far->spent >= SEARCH_INSTRS)) ||
            (so_far->fitted >= fewest && expected >= hopeless))
            return OK;
        TRY(try_next(t, &x->candidates[*n], so_far));
    }
    return OK;
}

/* One of every family that may be faster and of which none was tried: what others show of stalls need not hold for it. */
static enum status try_families(const struct trials *t, struct search *x, struct trying *so_far, int *n)
{
    for (; *n < x->n && so_far->spent < SEARCH_INSTRS && !(x->brief && *n >= BRIEF_TRIES); ++*n) {
        if (bring_next(x, *n, stalls_hope) >= FASTER * so_far->best)
            return OK;
        TRY(try_next(t, &x->candidates[*n], so_far));
    }
    return OK;
}

enum status search_try(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                       const int64_t limit[TIERS], struct search *x)
{
    struct trials t = {m, s, cost, limit, x, x->n > 1 ? TRIAL_SLACK : 0};
    struct trying so_far = {.best = x->beat};
    int n = 0;
    TRY(try_expected(&t, x, &so_far, &n));
    if (x->whole && so_far.fitted > 0)
        TRY(try_families(&t, x, &so_far, &n));
    if (so_far.fitted == 0 && !isfinite(x->beat))
        TRY(try_leanest(&t, x, n, 0, &n));
    x->n_tried = n;
    if (x->whole || !x->brief)
        TRY(try_otherwise(&t, x, so_far.best, &so_far.spent));
    x->spent = so_far.spent;
    qsort(x->candidates, (size_t)n, sizeof *x->candidates, search_order);
    return OK;
}

enum status search_try_as_is(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                             const int64_t limit[TIERS], struct search *x)
{
    struct trials t = {m, s, cost, limit, x};
    x->n_tried = 1;
    return trial_run(&t, &x->candidates[0], 0);
}

enum status search_try_leanest(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                               const int64_t limit[TIERS], struct search *x)
{
    struct trials t = {m, s, cost, limit, x};
    TRY(try_leanest(&t, x, 0, FIT_SERIAL, &x->n_tried));
    qsort(x->candidates, (size_t)x->n_tried, sizeof *x->candidates, search_order);
    return OK;
}
