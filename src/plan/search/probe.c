/* Looks at settings: smallest placements, and trials of the most promising ones. */
#include "plan/search/probe.h"

#include "plan/lower/fixed.h"
#include "plan/lower/grid.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/smallest.h"
#include "plan/search/price.h"
#include "plan/search/search.h"
#include "plan/search/trial.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

int probe_is_small(const struct candidate *c, const struct model *m)
{
    return c->all_layers && m->config.layers * ceil_div(c->strategy.rows, c->strategy.key.row_chunk) <= PROBE_SMALL_CHUNKS;
}

/* Returns the number of layer inputs held at once if one of `every` layers keeps its own: the kept ones, and those of one run of
 * layers in between. */
static double inputs_at_once(double layers, int every)
{
    return layers / every + every - 1;
}

/* Returns the number of layers, at least `every`, of which one should keep its input so that inputs take the least memory. */
static int smallest_turns(double layers, int every)
{
    while (every < INPUTS_EVERY_MOST && 2 * every < layers && inputs_at_once(layers, 2 * every) < inputs_at_once(layers, every))
        every *= 2;
    return every;
}

/* Returns smallest_turns of the model's layers; the strategy's own number if the request fixes layer inputs. */
static int smallest_inputs(const struct problem *p, const struct strategy *fixed)
{
    return p->request.keep_inputs > 0 ? fixed->placement.keep_inputs
                                      : smallest_turns((double)p->model->config.layers, fixed->placement.keep_inputs);
}

/* Tells whether no placement can fit in all tiers together: others need the bytes, too, that c, a smallest placement, has off the
 * device. Only layer inputs may be fewer (of one of `inputs` layers). */
static int is_too_much(const struct problem *p, const struct candidate *c, int inputs)
{
    double layers = (double)p->model->config.layers,
           fewer = inputs_at_once(layers, c->strategy.placement.keep_inputs) - inputs_at_once(layers, inputs);
    double input = (double)(c->strategy.rows * p->model->config.dim * dtype_size(c->strategy.key.dtype));
    double need = (double)(c->bytes[TIER_HOST] + c->bytes[TIER_NVME]) - fewer * input, there = 0;
    for (int t = 0; t < TIERS; t++)
        there += (double)p->limit[t];
    return (1 - PROBE_STAGED) * need > there;
}

/* Finds the smallest placement with the inputs of `fixed`, or with fewer as long as that helps and all may still fit: each step
 * gains half of the last step's gain. */
static enum status find_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct problem turns = *p;
    struct strategy fewer = *fixed;
    struct candidate next;
    int least = smallest_inputs(p, fixed);
    turns.request.keep_inputs = fixed->placement.keep_inputs; /* no fewer inputs in this search */
    TRY(search_smallest(&turns, fixed, out));
    while (fewer.placement.keep_inputs < least && out->excess > 1 && out->excess <= INPUTS_HELP) {
        turns.request.keep_inputs = fewer.placement.keep_inputs *= 2;
        TRY(search_smallest(&turns, &fewer, &next));
        double gained = out->excess - next.excess;
        if (gained > 0)
            *out = next;
        if (out->excess - gained > 1)
            return OK;
    }
    return OK;
}

enum status probe_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out)
{
    struct problem emptied = *p;
    const struct model *m = p->model;
    int least = smallest_inputs(p, fixed);
    search_empty_device(&emptied);
    TRY(find_smallest(&emptied, fixed, out));
    if (out->excess <= 1)
        return OK;
    if (!probe_is_small(out, m) &&
        (out->bytes[TIER_DEVICE] > p->limit[TIER_DEVICE] || /* hardly anything needs less of the device */
         (out->strategy.rows > out->strategy.key.row_chunk && is_too_much(p, out, least))))
        return OK; /* if not, the device may have room for bytes that are too many for host or drives */
    TRY(find_smallest(p, fixed, out));
    if (!probe_is_small(out, m) || out->excess <= 1 || out->excess > 1 + BYTES_UNCERTAIN)
        return OK;
    struct search all;
    TRY(search_create(p, fixed, &all));
    if (all.candidates[0].tried && all.candidates[0].excess < out->excess)
        *out = all.candidates[0];
    search_destroy(&all);
    return OK;
}

enum status probe_all_layers(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct candidate *c)
{
    struct problem p;
    if (c->all_layers)
        return OK;
    problem_set(&p, m, s, limit);
    TRY(trial_bytes(&p, &c->strategy, c->bytes));
    c->excess = budget_excess(c->bytes, limit);
    c->all_layers = 1;
    return OK;
}

/* Probes with the input of one of `keep_inputs` layers kept, or of fewer. */
static enum status fits_with_inputs(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                                    int keep_inputs, struct candidate *out)
{
    struct strategy fixed;
    struct problem p;
    TRY(plan_fixed(m, s, &fixed));
    problem_set(&p, m, s, limit);
    fixed.placement.keep_inputs = (int)max_i64(fixed.placement.keep_inputs, keep_inputs);
    TRY(probe_smallest(&p, &fixed, out));
    if (out->excess <= 1 || out->excess > PLAN_FINER_HELPS || out->bytes[TIER_DEVICE] <= limit[TIER_DEVICE] ||
        !probe_is_small(out, m) || !plan_finer_tiles(m, s, &fixed))
        return OK;
    for (int steps = 1; steps < PLAN_FINER && plan_finer_tiles(m, s, &fixed);)
        steps++;
    return probe_smallest(&p, &fixed, out);
}

enum status probe_fits(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct candidate *out)
{
    return fits_with_inputs(m, s, limit, 1, out);
}

enum status probe_fits_long(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            struct candidate *out)
{
    if (s->keep_inputs < 0 && m->config.layers > PROBE_INPUTS_EVERY) {
        TRY(fits_with_inputs(m, s, limit, PROBE_INPUTS_EVERY, out));
        if (out->excess <= 1 || !probe_is_small(out, m))
            return OK;
    }
    return probe_fits(m, s, limit, out);
}

/* Places *to as `like` is, with the same shares of its chunks kept and on the device. */
static void place_like(const struct strategy *like, struct strategy *to)
{
    const int64_t of = ceil_div(like->rows, like->key.row_chunk), chunks = ceil_div(to->rows, to->key.row_chunk);
    strategy_place(to, like);
    to->placement.kept_chunks = (int)(like->placement.kept_chunks * chunks / of);
    to->placement.device_chunks = (int)(like->placement.device_chunks * chunks / of);
}

enum status probe_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                       const struct strategy *like, struct candidate *out)
{
    struct strategy same;
    struct problem p;
    TRY(plan_fixed(m, s, &same));
    problem_set(&p, m, s, limit);
    place_like(like, &same);
    return search_fits(&p, &same, out);
}

enum status probe_fits_like(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                            const struct strategy *like, struct candidate *out)
{
    TRY(probe_like(m, s, limit, like, out));
    return out->excess <= 1 ? OK
                            : fits_with_inputs(m, s, limit, (int)min_i64(like->placement.keep_inputs, PROBE_INPUTS_EVERY), out);
}

enum status probe_estimate(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct candidate *out)
{
    struct strategy fixed;
    struct problem emptied;
    TRY(plan_fixed(m, s, &fixed));
    problem_set(&emptied, m, s, limit);
    return search_emptied(&emptied, &fixed, out);
}

enum status probe_inputs(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int most, int *every)
{
    struct strategy fixed;
    struct problem p;
    struct candidate least;
    TRY(plan_fixed(m, s, &fixed));
    problem_set(&p, m, s, limit);
    do {
        *every = fixed.placement.keep_inputs;
        TRY(search_emptied(&p, &fixed, &least));
    } while ((double)least.bytes[TIER_DEVICE] <= (1 + BYTES_UNCERTAIN) * (double)limit[TIER_DEVICE] &&
             is_too_much(&p, &least, *every) && *every < most && search_fewer_inputs(&p, &fixed));
    return OK;
}

/* Finds the fastest of a few promising placements: there is one if out->tried and out->excess <= 1. */
static enum status find_promising(const struct problem *p, double rate, struct candidate *out)
{
    struct strategy fixed;
    TRY(plan_fixed(p->model, &p->request, &fixed));
    TRY(probe_estimate(p->model, &p->request, p->limit, out));
    if (out->bytes[TIER_DEVICE] > (1 + BYTES_UNCERTAIN) * (double)p->limit[TIER_DEVICE] ||
        is_too_much(p, out, out->strategy.placement.keep_inputs))
        return OK;
    return search_promising(p, &fixed, rate, out);
}

enum status probe_seconds(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                          const struct strategy *like, struct candidate *out)
{
    struct strategy smallest;
    struct problem p;
    problem_set(&p, m, s, limit);
    TRY(find_promising(&p, rate, out));
    if (out->tried && out->excess <= 1)
        return OK;
    if (like) {
        TRY(plan_fixed(m, s, &smallest));
        place_like(like, &smallest);
        TRY(search_price_as_is(&p, &smallest, out));
        if (out->excess <= 1)
            return OK;
    }
    TRY(probe_fits(m, s, limit, out));
    if (out->excess > 1)
        return OK;
    smallest = out->strategy; /* one trial is enough for large models: placements beside it gain 5% at most */
    return (probe_is_small(out, m) ? search_price : search_price_as_is)(&p, &smallest, out);
}

enum status probe_seconds_of(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], double rate,
                             const struct candidate *fits, struct candidate *out)
{
    struct problem p;
    problem_set(&p, m, s, limit);
    TRY(find_promising(&p, rate, out));
    if (out->tried && out->excess <= 1)
        return OK;
    TRY(search_price_as_is(&p, &fits->strategy, out));
    if (out->excess > 1) { /* a trial that fetches ahead may overstate the need */
        memcpy(out->bytes, fits->bytes, sizeof out->bytes);
        out->excess = fits->excess;
    }
    return OK;
}
