/* Which placements there are, and which of them come first. */
#include "plan/search/trials.h"

#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void remove_redundant(struct search *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->candidates[i].redundant)
            s->candidates[n++] = s->candidates[i];
    s->n = n;
}

/* Whether programs are small enough to be tried with all layers. */
static int are_small(const struct estimator *e)
{
    double all, layer;
    estimator_instrs(e, &all, &layer);
    return all <= SEARCH_WHOLE;
}

/* All that the settings leave open, estimated if there is a choice or if it is asked for. */
static enum status list_all(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                            const struct cost_model *cost, const int64_t limit[TIERS], int always, struct search *out)
{
    struct options o;
    options_of(s, fixed, (int)m->config.layers, &o);
    *out = (struct search){.n = options_count(&o), .beat = INFINITY};
    out->candidates = sys_calloc((size_t)out->n + 2 + SEARCH_PUT + SEARCH_NEARER + SEARCH_FINER, sizeof *out->candidates);
    enum status st = out->candidates ? OK : status_fail(ERR_NOMEM, "out of memory while planning");
    if (st == OK && (out->n > 1 || always))
        st = estimator_create(m, s, &o, fixed, cost, limit, &out->estimator);
    if (st != OK) {
        search_destroy(out);
        return st;
    }
    out->whole = out->estimator && are_small(out->estimator);
    for (int i = 0; i < out->n; i++) {
        struct candidate *c = &out->candidates[i];
        c->strategy = *fixed;
        c->place = i;
        options_place(&o, i, &c->strategy);
        if (out->estimator)
            estimator_judge(out->estimator, c);
    }
    remove_redundant(out);
    return OK;
}

/* Numbers of layers of which one keeps its input. */
static const int turns[] = {2, 4, 8};
enum { TURNS = sizeof turns / sizeof *turns };
/* Keeps the next fewer layer inputs, if the settings leave that open and the model has as many layers; 0: there are none. */
static int fewer_inputs(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    int i = 0;
    while (i < TURNS && turns[i] <= out->input_every)
        i++;
    if (s->keep_inputs > 0 || i == TURNS || turns[i] >= (int)m->config.layers)
        return 0;
    out->input_every = turns[i];
    return 1;
}

/* Whether nothing will fit: of what the last turns gained, the next ones gain half, so all of them together at most as much. */
static int is_hopeless(double excess, double gained)
{
    return excess - gained > 1;
}

void search_keep_most(const struct search *x, int high, struct candidate *c)
{
    struct candidate more = *c;
    int low = c->strategy.kept_chunks;
    while (low < high) {
        more.strategy.kept_chunks = (low + high + 1) / 2;
        estimator_judge(x->estimator, &more);
        if (more.excess <= 1) {
            low = more.strategy.kept_chunks;
            *c = more;
        } else {
            high = more.strategy.kept_chunks - 1;
        }
    }
}

#define FULL 0.9 /* share of a budget from which on memory may have limited a placement */

/* What a placement is reckoned to take after c, with stalls as trials have shown. */
static double expected_after(const struct search *x, const struct candidate *c, const struct candidate *next)
{
    double rate = (c->seconds - c->estimate) / fmax(c->traffic, 1e-9);
    return x->known ? stalls_expect(x, 0, next) : next->estimate + rate * next->traffic;
}

/* Whether some placement that ought to fit is reckoned to be faster; where little is to be gained, quarters of the chunks are too
 * coarse. */
static int is_promising(const struct search *x, const struct candidate *c, double gain)
{
    double enough = (1 - gain) * c->seconds;
    for (int i = 0; i < x->n; i++) {
        struct candidate next = x->candidates[i];
        if (next.excess > 1)
            continue;
        if (expected_after(x, c, &next) < enough)
            return 1;
        if (gain < SEARCH_GAIN)
            search_keep_most(x, estimator_options(x->estimator)->kept[0], &next);
        if (expected_after(x, c, &next) < enough)
            return 1;
    }
    return 0;
}

static void move_to_front(struct search *x, const struct candidate *c)
{
    int at = 0;
    while (at < x->n && (x->candidates[at].strategy.kept_chunks != c->strategy.kept_chunks ||
                         !search_same_classes(&x->candidates[at].strategy, &c->strategy)))
        at++;
    if (at == x->n)
        x->n++;
    memmove(&x->candidates[1], &x->candidates[0], (size_t)at * sizeof *c);
    x->candidates[0] = *c;
    x->given = 1;
}

/* Puts a placement that was tried on this grid first. */
static enum status put_found(struct search *x, const struct candidate *found)
{
    struct candidate c = {.strategy = found->strategy, .late = found->late};
    if (c.strategy.device_chunks > 0)
        TRY(estimator_split(x->estimator));
    estimator_judge(x->estimator, &c);
    move_to_front(x, &c);
    return OK;
}

/* Puts another grid's placement first, if it ought to fit: with as large a share of the chunks kept, or as many as there is room
 * for where memory seems to have been what limited them. */
static enum status put_first(struct search *x, const struct strategy *fixed, const struct candidate *other)
{
    const struct options *o = estimator_options(x->estimator);
    const struct strategy *like = &other->strategy;
    struct candidate c = {.strategy = *fixed};
    int share = strategy_share(fixed, like);
    strategy_place(&c.strategy, like);
    c.strategy.input_every = fixed->input_every;
    c.strategy.kept_chunks = o->kept[o->n_kept - 1];
    if (c.strategy.device_chunks > 0)
        TRY(estimator_split(x->estimator));
    estimator_judge(x->estimator, &c);
    if (c.excess > 1)
        return OK;
    search_keep_most(x, other->excess > FULL ? o->kept[0] : share, &c);
    move_to_front(x, &c);
    return OK;
}

/* What no listed placement is: classes in two tiers, other numbers of chunks. */
static enum status search_around(const struct trials *t, struct search *x)
{
    TRY(search_nearer(t, x));
    TRY(search_refine(t, x));
    return search_split(t, x);
}

/* Lists, tries and refines with the inputs of the fixed strategy. */
static enum status search_inputs(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                                 const struct cost_model *cost, const int64_t limit[TIERS], const struct search_lead *lead,
                                 int brief, struct search *out)
{
    const struct candidate *beat = lead->beat;
    TRY(list_all(m, s, fixed, cost, limit, 0, out));
    if (out->n == 1)
        return OK;
    out->brief = brief;
    out->known = lead->known;
    struct trials t = {m, s, cost, limit, out, TRIAL_SLACK};
    if (beat && lead->gain < SEARCH_GAIN)
        out->beat = beat->seconds;
    qsort(out->candidates, (size_t)out->n, sizeof *out->candidates, search_order);
    enum status st = lead->first ? put_found(out, lead->first) : out->known ? put_first(out, fixed, beat) : OK;
    int worth = !beat || beat->excess > 1 || lead->first || is_promising(out, beat, lead->gain);
    if (st == OK && worth)
        st = search_try(m, s, cost, limit, out);
    if (st == OK && worth && !brief)
        st = search_around(&t, out);
    out->known = NULL;
    if (st != OK)
        search_destroy(out);
    return st;
}

/* Whether the best of x was tried and beats c by what is to be gained, or fits as c does not. */
static int is_worth(const struct search *x, const struct candidate *c)
{
    const struct candidate *best = &x->candidates[0];
    return best->tried &&
           (c->excess <= 1 ? best->excess <= 1 && best->seconds < (1 - SEARCH_GAIN) * c->seconds : best->excess < c->excess);
}

enum status search_create(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], struct search *out)
{
    return search_to_beat(m, s, fixed, cost, limit, &(struct search_lead){0}, out);
}

enum status search_to_beat(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], const struct search_lead *lead,
                           struct search *out)
{
    struct strategy fewer = *fixed;
    TRY(search_inputs(m, s, fixed, cost, limit, lead, 0, out));
    while (out->n_tried > 0 && !isfinite(out->beat) && fewer_inputs(m, s, &fewer)) {
        const struct candidate *best = &out->candidates[0];
        struct search x;
        if (best->excess > SEARCH_TURNS_HELP || (best->excess <= 1 && best->compute >= (1 - SEARCH_GAIN) * best->seconds))
            return OK;
        const struct search_lead more = {.beat = best, .gain = SEARCH_GAIN};
        enum status st = search_inputs(m, s, &fewer, cost, limit, &more, 0, &x);
        if (st != OK) {
            search_destroy(out);
            return st;
        }
        int worth = is_worth(&x, best), fits = best->excess <= 1;
        double gained = best->excess - x.candidates[0].excess;
        search_destroy(worth ? out : &x);
        if (worth)
            *out = x;
        if (fits ? !worth : is_hopeless(out->candidates[0].excess, gained))
            return OK;
    }
    return OK;
}

enum status search_glance(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], double *instrs, double *least)
{
    struct search x;
    double layer;
    TRY(list_all(m, s, fixed, cost, limit, 1, &x));
    estimator_instrs(x.estimator, instrs, &layer);
    *least = INFINITY;
    for (int i = 0; i < x.n; i++)
        if (x.candidates[i].excess <= 1)
            *least = fmin(*least, x.candidates[i].estimate);
    search_destroy(&x);
    return OK;
}

enum status search_briefly(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], const struct search_lead *lead,
                           double *spent, struct candidate *out)
{
    struct search x;
    TRY(search_inputs(m, s, fixed, cost, limit, lead, 1, &x));
    *out = x.candidates[0];
    for (int i = 1; i < x.n_tried; i++)
        if (x.candidates[i].excess <= 1 && search_cost(&x.candidates[i]) < search_cost(out))
            *out = x.candidates[i];
    int single = x.n == 1;
    *spent += x.spent;
    search_destroy(&x);
    const struct strategy alone = out->strategy;
    return single ? search_price(m, s, &alone, cost, limit, out) : OK;
}

/* The leanest placement with the inputs of the fixed strategy: as little else is kept as may be. */
static enum status leanest_inputs(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                                  const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    struct plan_request lean = *s;
    struct search x;
    lean.alpha = s->alpha < 0 ? 0 : s->alpha;
    TRY(list_all(m, &lean, fixed, cost, limit, 1, &x));
    enum status st = search_try_leanest(m, &lean, cost, limit, &x);
    if (st == OK)
        *out = x.candidates[0];
    search_destroy(&x);
    return st;
}

enum status search_leanest(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    struct strategy fewer = *fixed;
    struct candidate next;
    TRY(leanest_inputs(m, s, fixed, cost, limit, out));
    while (out->excess > 1 && out->excess <= SEARCH_TURNS_HELP && fewer_inputs(m, s, &fewer)) {
        TRY(leanest_inputs(m, s, &fewer, cost, limit, &next));
        double gained = out->excess - next.excess;
        if (gained > 0)
            *out = next;
        if (is_hopeless(out->excess, gained))
            return OK;
    }
    return OK;
}

/* Brings the one that ought to fit and be the fastest to place n. Returns 0 if none ought to fit. */
static int bring_promising(struct search *x, int n, double rate)
{
    int at = -1;
    double least = INFINITY;
    for (int i = n; i < x->n; i++) {
        const struct candidate *c = &x->candidates[i];
        double seconds = c->estimate + rate * c->traffic;
        if (c->excess <= 1 && seconds < least) {
            least = seconds;
            at = i;
        }
    }
    if (at < 0)
        return 0;
    struct candidate next = x->candidates[at];
    x->candidates[at] = x->candidates[n];
    x->candidates[n] = next;
    return 1;
}

enum status search_least(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    struct search x;
    TRY(list_all(m, s, fixed, cost, limit, 1, &x));
    *out = x.candidates[0];
    for (int i = 1; i < x.n; i++)
        if (x.candidates[i].excess < out->excess)
            *out = x.candidates[i];
    search_destroy(&x);
    return OK;
}

enum status search_promising(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                             const struct cost_model *cost, const int64_t limit[TIERS], double rate, struct candidate *out)
{
    struct search x;
    TRY(list_all(m, s, fixed, cost, limit, 1, &x));
    struct trials t = {m, s, cost, limit, &x, TRIAL_SLACK};
    enum status st = OK;
    double spent = 0;
    *out = x.candidates[0];
    for (int i = 0; i < x.n && spent < SEARCH_LITTLE && bring_promising(&x, i, rate); i++) {
        struct candidate *c = &x.candidates[i];
        spent += trial_instrs(&t, c);
        TRY_GOTO(trial_run(&t, c, 0), done);
        if (!out->tried || search_order(c, out) < 0)
            *out = *c;
    }
done:
    search_destroy(&x);
    return st;
}

typedef enum status try_candidates(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                                   const int64_t limit[TIERS], struct search *x);

static enum status try_one(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                           const struct cost_model *cost, const int64_t limit[TIERS], try_candidates *try, struct candidate *out)
{
    int n = strategy->device_layers, chunks = strategy->device_chunks,
        two = n + chunks > 0; /* what stays on the device is reckoned from the activations there */
    struct options o = {.params = {strategy->params},
                        .grads = {strategy->grads},
                        .optim = {strategy->optim},
                        .acts = {two ? RES_DEVICE : strategy->acts, strategy->acts},
                        .passing = {two ? RES_DEVICE : strategy->passing, strategy->passing},
                        .n_params = 1,
                        .n_grads = 1,
                        .n_optim = 1,
                        .n_acts = 1 + two,
                        .update = {strategy->update_on_host},
                        .n_update = 1,
                        .device_layers = {n},
                        .n_device_layers = 1,
                        .kept = {strategy->kept_chunks},
                        .n_kept = chunks > 0 && strategy->kept_chunks > 0 ? 2 : 1}; /* which chunks are kept matters then */
    struct strategy fixed = *strategy;
    struct search x = {.candidates = out, .n = 1, .beat = INFINITY};
    fixed.device_layers = fixed.device_chunks = fixed.nearer = 0;
    if (strategy->nearer > 0)
        options_open_nearer(&o, strategy->nearer_class, strategy->nearer_at);
    TRY(estimator_create(m, s, &o, &fixed, cost, limit, &x.estimator));
    x.whole = are_small(x.estimator);
    *out = (struct candidate){.strategy = *strategy};
    enum status st = chunks > 0 ? estimator_split(x.estimator) : OK;
    estimator_judge(x.estimator, out);
    if (st == OK)
        st = try(m, s, cost, limit, &x);
    estimator_destroy(x.estimator);
    return st;
}

enum status search_price(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    return try_one(m, s, strategy, cost, limit, search_try, out);
}

enum status search_price_as_is(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                               const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    return try_one(m, s, strategy, cost, limit, search_try_as_is, out);
}

enum status search_fits(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                        const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    return try_one(m, s, strategy, cost, limit, search_try_leanest, out);
}

void search_put(struct search *x, int at, const struct candidate *c)
{
    memmove(&x->candidates[at + 1], &x->candidates[at], (size_t)(x->n - at) * sizeof *c);
    x->candidates[at] = *c;
    x->n++;
    x->n_tried++;
}

void search_destroy(struct search *s)
{
    free(s->candidates);
    estimator_destroy(s->estimator);
    s->candidates = NULL;
    s->estimator = NULL;
    s->n = 0;
}
