/* Around the fastest placement that was tried: other numbers of kept chunks, and less traffic at almost its speed. */
#include "machine/hardware.h"
#include "plan/search/trials.h"

#include <math.h>
#include <string.h>

/* What the search gives at most for less traffic, as a share of the step: of measured figures and of trials of a few
 * layers, and of data sheets, where it is to settle what is about the same. */
#define MARGIN_NOISY 0.003
#define MARGIN 5e-4
/* What links slower by FIT_SLOW may add to the step before that counts like the step, up to a share of it: where a step waits
 * for links anyway, a much longer one that does not is no gain. And what a second of drive writes counts: a twentieth cost up to
 * 1.2% of the step, nothing led to placements that only just wait for drives (row 2 of plan_random at 0.30). */
#define SLOW_MAY 1.03
#define SLOW_COUNTS 0.01
#define WRITES_COUNT 0.02
/* What a second of traffic is worth in seconds of the step, as others use the links, too; and what one of drive writes is: at 20
 * GB/s it wears drives of one write a day for five years by about what a second of a rented GPU costs. */
#define TRAFFIC_WORTH 0.1
#define WRITES_WORTH 1.0
/* What a second of messages costs compute: they take memory bandwidth and multiprocessors (as in seqpar/degrees.c). */
#define CONTENTION 0.25
/* Of the best: what is expected above that is not tried. */
#define WORTH_TRYING 0.999
#define REFINE_INSTRS (2 * SEARCH_INSTRS)
enum { FINER_TRIES = 6, LEANER_TRIES = 3, FEWER_TRIES = SEARCH_FINER - FINER_TRIES - LEANER_TRIES };

struct refining {
    const struct trials *trials;
    struct search *x;
    double spent; /* instructions */
    double room;  /* the largest excess by estimate that ought to fit, as trials that did not have shown */
};

double search_margin(const struct plan_request *s)
{
    return s->hardware && !s->hardware->cpu ? MARGIN : MARGIN_NOISY;
}

int search_is_coarse(const struct strategy *s)
{
    return s->acts != RES_DEVICE && ceil_div(s->rows, s->row_chunk) < SEARCH_FEW_CHUNKS;
}

int search_is_bulky(const struct model *m, const struct strategy *s, const int64_t limit[TIERS])
{
    return 32 * s->rows * m->config.dim * (int64_t)dtype_size(s->dtype) > limit[TIER_DEVICE];
}

int search_same_classes(const struct strategy *a, const struct strategy *b)
{
    return a->params == b->params && a->grads == b->grads && a->optim == b->optim && a->acts == b->acts &&
           a->passing == b->passing && a->update_on_host == b->update_on_host && a->device_layers == b->device_layers &&
           a->device_chunks == b->device_chunks && a->nearer == b->nearer &&
           (a->nearer == 0 || (a->nearer_class == b->nearer_class && a->nearer_at == b->nearer_at));
}

int candidate_settles(const struct candidate *tried, const struct strategy *s)
{
    const int kept = tried->strategy.kept_chunks;
    return search_same_classes(&tried->strategy, s) && (kept == s->kept_chunks || (tried->excess > 1 && kept < s->kept_chunks));
}

int search_settled(const struct search *x, const struct strategy *s)
{
    for (int i = 0; i < x->n_tried; i++)
        if (candidate_settles(&x->candidates[i], s))
            return 1;
    return 0;
}

static enum status try(struct refining *r, struct candidate *c)
{
    struct search *x = r->x;
    double estimated = c->excess;
    r->spent += trial_instrs(r->trials, c);
    c->otherwise = 0;
    TRY(trial_run(r->trials, c, c->late));
    if (c->excess > 1)
        r->room = fmin(r->room, estimated / c->excess);
    memmove(&x->candidates[x->n_tried + 1], &x->candidates[x->n_tried], (size_t)(x->n - x->n_tried) * sizeof *c);
    x->candidates[x->n_tried++] = *c;
    x->n++;
    return OK;
}

/* Sets c's seconds to its estimate and the stalls that `tried` showed, in proportion to traffic. */
static void expect(struct candidate *c, const struct candidate *tried)
{
    double traffic = c->traffic / fmax(tried->traffic, 1e-9);
    c->seconds = c->estimate + (tried->seconds - tried->estimate) * traffic;
    c->slow = c->estimate + (tried->slow - tried->estimate) * traffic;
}

int search_suffers(const struct candidate *c)
{
    return c->slow > SLOW_MAY * c->seconds;
}

double search_slow_cost(const struct candidate *c)
{
    return c->seconds + fmax(0, c->slow - SLOW_MAY * c->seconds);
}

double search_cost(const struct candidate *c)
{
    return fmin(search_slow_cost(c), (1 + SLOW_COUNTS) * c->seconds) + WRITES_COUNT * c->written;
}

double search_weighed(const struct candidate *c)
{
    return search_cost(c) + CONTENTION * c->messages;
}

double search_score(const struct candidate *c)
{
    return (c->seconds + c->slow) / 2 + TRAFFIC_WORTH * c->traffic + WRITES_WORTH * c->written;
}

/* Steps of half a quarter down to one chunk, each to where it is faster. */
static enum status refine_kept(struct refining *r, struct candidate *best)
{
    const struct options *o = estimator_options(r->x->estimator);
    int most = o->kept[0], fewest = o->kept[o->n_kept - 1], tries = 0;
    for (int step = (most - fewest + 7) / 8; step > 0; step = step > 1 ? (step + 1) / 2 : 0)
        for (int sign = 1; sign >= -1 && tries < FINER_TRIES && r->spent < REFINE_INSTRS; sign -= 2) {
            struct candidate c = *best;
            c.strategy.kept_chunks += sign * step;
            if (c.strategy.kept_chunks > most || c.strategy.kept_chunks < fewest || search_settled(r->x, &c.strategy))
                continue;
            estimator_judge(r->x->estimator, &c);
            expect(&c, best);
            if (c.excess > 1 || search_cost(&c) >= WORTH_TRYING * search_cost(best))
                continue;
            TRY(try(r, &c));
            tries++;
            if (c.excess <= 1 && search_cost(&c) < search_cost(best)) {
                *best = c;
                break;
            }
        }
    return OK;
}

/* Of all placements that ought to fit and have a price of `highest` at most the one with the least traffic, if that is less than
 * out->traffic. Returns whether there is one. */
static int find_leaner(const struct refining *r, const struct candidate *fastest, double highest, double *least,
                       struct candidate *out)
{
    const struct options *o = estimator_options(r->x->estimator);
    int found = 0, most = o->kept[0], fewest = o->kept[o->n_kept - 1], step = (int)max_i64(1, (most - fewest + 31) / 32);
    for (int i = 0; i < options_count(o); i += o->n_kept)
        for (int kept = fewest; kept <= most; kept += step) {
            struct candidate c = *fastest;
            options_place(o, i, &c.strategy);
            c.strategy.kept_chunks = kept;
            estimator_judge(r->x->estimator, &c);
            expect(&c, fastest);
            if (c.redundant || c.excess > r->room || search_cost(&c) > highest || search_score(&c) >= *least ||
                search_settled(r->x, &c.strategy))
                continue;
            *least = search_score(&c);
            *out = c;
            found = 1;
        }
    return found;
}

/* What is fast enough, given what was tried. */
static double enough(const struct refining *r)
{
    const struct search *x = r->x;
    double least = INFINITY;
    for (int i = 0; i < x->n_tried; i++)
        if (x->candidates[i].excess <= 1)
            least = fmin(least, search_cost(&x->candidates[i]));
    return (1 + (x->whole ? search_margin(r->trials->s) : MARGIN_NOISY)) * least;
}

/* Brings the best to the front of those that were tried and are fast enough. Returns below what score another one is worth
 * trying. */
static double choose(const struct refining *r)
{
    struct search *x = r->x;
    int at = -1;
    for (int i = 0; i < x->n_tried; i++) {
        const struct candidate *c = &x->candidates[i];
        if (c->excess <= 1 && search_cost(c) <= enough(r) && (at < 0 || search_score(c) < search_score(&x->candidates[at])))
            at = i;
    }
    struct candidate chosen = x->candidates[at];
    memmove(&x->candidates[1], &x->candidates[0], (size_t)at * sizeof chosen);
    x->candidates[0] = chosen;
    return WORTH_TRYING * search_score(&chosen);
}

/* Bisection for the fewest kept chunks that are fast enough. */
static enum status keep_fewer(struct refining *r, double least)
{
    const struct options *o = estimator_options(r->x->estimator);
    struct candidate c = r->x->candidates[0];
    int high = c.strategy.kept_chunks, low = o->kept[o->n_kept - 1];
    for (int tries = 0; low < high && tries < FEWER_TRIES && r->spent < REFINE_INSTRS;) {
        c.strategy.kept_chunks = (low + high) / 2;
        estimator_judge(r->x->estimator, &c);
        c.slow = c.seconds;
        if (c.excess <= 1 && search_cost(&c) <= enough(r) && !search_settled(r->x, &c.strategy)) {
            if (search_score(&c) >= least)
                return OK;
            TRY(try(r, &c));
            tries++;
        }
        if (c.excess <= 1 && search_cost(&c) <= enough(r))
            high = c.strategy.kept_chunks;
        else
            low = c.strategy.kept_chunks + 1;
    }
    return OK;
}

enum status search_refine(const struct trials *t, struct search *x)
{
    struct refining r = {t, x, 0, 1};
    if (x->candidates[0].excess > 1)
        return OK;
    choose(&r);
    struct candidate fastest = x->candidates[0], next;
    TRY(refine_kept(&r, &fastest));
    double least = choose(&r);
    for (int i = 0; i < LEANER_TRIES && r.spent < REFINE_INSTRS && find_leaner(&r, &fastest, enough(&r), &least, &next); i++) {
        TRY(try(&r, &next));
        least = choose(&r);
    }
    TRY(keep_fewer(&r, least));
    choose(&r);
    return OK;
}
