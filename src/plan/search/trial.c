/* One placement on the virtual clock. */
#include "plan/search/trial.h"

#include "base/parallel.h"
#include "base/progress.h"
#include "plan/lower/fixed.h"
#include "plan/schedule/order.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/measure.h"
#include "plan/search/memo.h"
#include "plan/search/shelf.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <string.h>

/* Returns the number of layers that a trial needs: those that stay on the device, as many others as differ, and the first and the
 * last one. */
static int64_t trial_layers(const struct trials *x, const struct candidate *c)
{
    int64_t period = c->strategy.placement.keep_inputs,
            n = c->strategy.placement.device_layers + problem_least_layers(x->problem, 2) + period,
            layers = x->problem->model->config.layers;
    return 2 * n - period >= layers || x->search->all_layers ? layers : n;
}

double trial_instrs(const struct trials *x, const struct candidate *c)
{
    int64_t n = trial_layers(x, c);
    double all, layer;
    estimator_instrs(x->search->estimator, &all, &layer);
    return n == x->problem->model->config.layers ? all
                                                 : (c->strategy.placement.promoted_layers > 0 ? 2 : 1) * layer *
                                                       (double)(2 * n - c->strategy.placement.keep_inputs);
}

/* Outcome of a program on the virtual clock. */
struct outcome {
    int level;         /* the prefetch level found */
    int writes_queued; /* most blocks of drive writes in flight */
    double seconds, slow;
    double messages; /* seconds of messages between all ranks */
    int64_t arena[TIERS], limit[TIERS];
};

/* A job: schedules a model of `layers` layers on the virtual clock, at the first prefetch level from `level` on that fits. */
struct scheduled {
    const struct trials *trials;
    const struct strategy *strategy;
    int64_t layers, limit[TIERS];
    int duties; /* enum program_duty; 0: those of the first program of the set */
    int level;  /* in: the first prefetch level; out: the level found */
    double seconds, slow;
    double *messages; /* NULL, or seconds of messages between all ranks */
    int64_t arena[TIERS];
};

/* Everything that an outcome depends on but the limits. */
struct outcome_key {
    struct strategy strategy;
    uint64_t model, costs; /* hashes */
    double slack;
    int duties, level, last_level;
    int number; /* outcomes that differ in their limits are numbered */
};

/* Returns the seconds that a lane is busy. */
static double busy_seconds(const struct program *p, enum lane lane)
{
    double busy = 0;
    for (int i = 0; i < p->n_instrs; i++)
        busy += p->instrs[i].lane == lane ? p->instrs[i].end - p->instrs[i].start : 0;
    return busy;
}

/* Makes a key, padding included. */
static void set_key(const struct scheduled *x, const struct model *m, const struct strategy *s, int duties,
                    struct outcome_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(&out->strategy, s, sizeof *s);
    if (s->placement.promoted_layers == 0) {
        out->strategy.placement.promoted_class = CLASS_PARAM;
        out->strategy.placement.promote_tier = RES_DEVICE;
    }
    out->model = memo_model(m);
    out->costs = x->trials->problem->costs;
    out->slack = x->trials->slack;
    out->duties = duties;
    out->level = x->level;
    out->last_level = x->trials->last_level;
}

/* Tells whether an outcome holds for other limits, too. In the serial order there are none. Else the program must fit, at the
 * first level that is asked for or at one that had looser limits: earlier levels did not fit those. */
static int holds_within(const struct outcome *x, const struct outcome_key *k, const int64_t limit[TIERS])
{
    enum tier which;
    int tighter = 1;
    if (k->level == FIT_SERIAL || memcmp(x->limit, limit, sizeof x->limit) == 0)
        return 1;
    for (int t = 0; t < TIERS; t++)
        tighter &= limit[t] <= x->limit[t];
    return isfinite(x->seconds) && fit_within(x->arena, x->limit, &which) && fit_within(x->arena, limit, &which) &&
           (tighter || x->level == k->level);
}

/* Looks for an outcome that holds within the limits, from k->number on. Leaves in k->number the first number that is free.
 * least_depth: an outcome that queued more blocks of drive writes does not hold. */
static int find_numbered(struct outcome_key *k, const int64_t limit[TIERS], int least_depth, struct outcome *out)
{
    for (k->number = 0; memo_find(k, sizeof *k, out, sizeof *out); k->number++)
        if (out->writes_queued <= least_depth && holds_within(out, k, limit))
            return 1;
    return 0;
}

/* Looks for a known outcome: of this depth of drive writes, or without a bound where no more were queued. */
static int find_outcome(struct outcome_key *k, const int64_t limit[TIERS], struct outcome *out)
{
    struct outcome_key unbound = *k;
    unbound.strategy.placement.write_depth = 0;
    return find_numbered(k, limit, INT_MAX, out) ||
           (k->strategy.placement.write_depth > 0 && find_numbered(&unbound, limit, k->strategy.placement.write_depth, out));
}

/* Tells whether a program is so large that it may exceed its tables. */
static int is_near_tables(const struct need *need)
{
    return need->buffers >= PROGRAM_MOST_NAMES / 2.0 || need->versions >= PROGRAM_MOST_VERSIONS / 2.0;
}

/* Finds the bytes that live at once, at most. */
static void need_bytes(const struct need *need, int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++) {
        double most = 0;
        for (int i = 0; i < MOMENTS; i++)
            most = larger(most, need->short_lived[i][t]);
        out[t] = (int64_t)(need->persistent[t] + most);
    }
}

/* Returns the fewest instructions of a program whose trial in the serial order is measured from samples. */
static double fewest_sampled(const struct model *m)
{
    return m->config.dim >= SERIAL_WIDE ? SERIAL_SAMPLED_INSTRS_WIDE : SERIAL_SAMPLED_INSTRS;
}

/* Finds the bytes that a program needs in the serial order, where packing leaves hardly a gap: those that live at once, from samples
 * where a program has many chunks. */
static enum status find_serial_bytes(const struct trials *x, const struct model *m, const struct outcome_key *k,
                                     int64_t out[TIERS])
{
    const struct subject subject = {x->problem, m, k->model};
    struct need need;
    int known;
    TRY(measure_sampled(&subject, &k->strategy, k->duties, &known, &need));
    if (!known || need.instrs < fewest_sampled(m) || is_near_tables(&need))
        return fit_serially(m, &k->strategy, k->duties, out);
    need_bytes(&need, out);
    return OK;
}

enum status trial_bytes(const struct problem *p, const struct strategy *s, int64_t out[TIERS])
{
    const struct trials x = {.problem = p};
    const struct outcome_key key = {.strategy = *s, .model = memo_model(p->model), .duties = plan_first_duties(&p->request)};
    return find_serial_bytes(&x, p->model, &key, out);
}

/* Schedules a draft within out->limit. */
static enum status schedule_draft(const struct trials *x, const struct outcome_key *k, struct draft *d, struct outcome *out)
{
    struct program *p = draft_program(d);
    struct cost_model slow;
    TRY(draft_fit(d, &k->strategy, &x->problem->cost, out->limit, k->slack, k->last_level ? k->last_level : FIT_SERIAL,
                  &out->level));
    out->seconds = out->slow = p->seconds;
    memcpy(out->arena, p->arena, sizeof out->arena);
    out->messages = busy_seconds(p, LANE_WORLD);
    cost_with_links(&x->problem->cost, FIT_SLOW, &slow);
    if (isfinite(p->seconds))
        TRY(schedule_simulate(p, &slow, &out->slow));
    out->writes_queued = p->writes_queued;
    return OK;
}

/* Schedules a model's program within out->limit. At FIT_SERIAL only bytes are found. */
static enum status schedule(const struct trials *x, const struct model *m, const struct outcome_key *k, struct outcome *out)
{
    struct io_buffers io;
    struct shelf_key key;
    out->level = k->level;
    if (k->level == FIT_SERIAL)
        return find_serial_bytes(x, m, k, out->arena);
    shelf_key_set(&k->strategy, k->model, k->costs, k->duties, &key);
    struct draft *d = shelf_take(&key);
    if (!d)
        TRY(draft_create(m, &k->strategy, &x->problem->cost, k->duties, &io, &d));
    enum status st = schedule_draft(x, k, d, out);
    if (st == OK && memo_is_held())
        shelf_put(&key, d);
    else
        draft_destroy(d);
    return st;
}

static enum status schedule_layers(void *job)
{
    struct scheduled *out = job;
    const struct trials *x = out->trials;
    struct model *m;
    struct strategy s = *out->strategy;
    struct outcome_key key;
    struct outcome found;
    s.placement.promoted_layers =
        /* promotes the same share of the layers as in the whole model */
        (int)(s.placement.promoted_layers * out->layers / x->problem->model->config.layers);
    if (out->layers ==
        x->problem->model->config.layers) /* shortened models keep the mean number of chunks in all kinds of layers */
        plan_keep_as_given(x->problem->model, &x->problem->request, &s);
    TRY(problem_shortened(x->problem, out->layers, &m));
    set_key(out, m, &s, out->duties ? out->duties : plan_first_duties(&x->problem->request), &key);
    enum status st = OK;
    if (!find_outcome(&key, out->limit, &found)) {
        found = (struct outcome){0};
        memcpy(found.limit, out->limit, sizeof found.limit);
        st = schedule(x, m, &key, &found);
        if (st == OK)
            memo_keep(&key, sizeof key, &found, sizeof found);
    }
    model_destroy(m);
    TRY(st);
    out->level = found.level;
    out->seconds = found.seconds;
    out->slow = found.slow;
    if (out->messages)
        *out->messages = found.messages;
    memcpy(out->arena, found.arena, sizeof out->arena);
    return OK;
}

static void conclude(const struct trials *x, struct candidate *c, const struct scheduled *larger)
{
    int64_t more = x->problem->model->config.layers - larger->layers;
    int nowhere = larger->arena[TIER_DEVICE] == FIT_NOWHERE;
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = larger->arena[t] + (nowhere ? 0 : more * c->layer_bytes[t]);
    c->level = larger->level;
    c->excess = budget_excess(c->bytes, x->problem->limit);
    c->tried = 1;
    c->all_layers = more == 0;
}

/* Computes the limits of a trial of `layers` layers of c: the problem's limits less the bytes of the layers left out, as `of` has
 * them. If a layer of c takes more bytes than one of `of`, the limits are that much higher. */
static void limit_layers(const struct trials *x, const struct candidate *c, const struct candidate *of, int64_t layers,
                         int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        out[t] = x->problem->limit[t] - x->problem->model->config.layers * of->layer_bytes[t] + layers * c->layer_bytes[t];
}

/* Finds bytes without seconds. If one of several layers keeps its input, a layer's bytes are the difference between two trials
 * that both have a run of recomputed layers.
 *
 * The estimator's short model has no such run, so that bytes needed once would count for every run. */
static enum status trial_serially(const struct trials *x, struct candidate *c)
{
    int64_t layers = x->problem->model->config.layers, period = c->strategy.placement.keep_inputs, n = trial_layers(x, c);
    n += (layers - n) % period; /* so that the layers left out are a multiple of the period */
    int two = period > 1 && n + period <= layers;
    struct scheduled models[2] = {
        {.trials = x, .strategy = &c->strategy, .layers = two ? n + period : n, .level = FIT_SERIAL},
        {.trials = x, .strategy = &c->strategy, .layers = n, .level = FIT_SERIAL},
    };
    TRY(parallel_run(schedule_layers, models, sizeof *models, 1 + two));
    for (int t = 0; two && t < TIERS; t++)
        c->layer_bytes[t] = (models[0].arena[t] - models[1].arena[t]) / period;
    conclude(x, c, &models[0]);
    c->seconds = c->slow = c->estimate;
    return OK;
}

/* Tries the first step's program, without an update, too: its packing may need more memory, which matters for a trial that only
 * just fits. */
static enum status also_without_update(const struct trials *x, struct candidate *c, const struct scheduled *tried)
{
    struct scheduled step = *tried;
    step.duties = plan_first_duties(&x->problem->request) & ~DUTY_UPDATE;
    TRY(schedule_layers(&step));
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = max_i64(c->bytes[t], step.arena[t]);
    c->excess = budget_excess(c->bytes, x->problem->limit);
    return OK;
}

/* Numbers of layers of the two models from which a program's seconds are extrapolated; equal if a model has all layers. */
struct sizes {
    int64_t larger, shorter;
};

/* Returns the sizes of trials; for `more` above 1, sizes that are `more` times as many layers apart. Just behind the shortest
 * model, layers differ from later ones in the data fetched beside them; over a few layers this evens out. */
static struct sizes sizes_of(const struct trials *x, const struct candidate *c, int64_t more)
{
    const int64_t n = trial_layers(x, c), period = c->strategy.placement.keep_inputs, layers = x->problem->model->config.layers;
    if (n == layers || n + (more > 1) * (more + 1) * period >= layers)
        return (struct sizes){layers, layers};
    return more > 1 ? (struct sizes){n + (more + 1) * period, n + period} : (struct sizes){n, n - period};
}

/* Schedules a program of placement c with a few layers, and scales its seconds to all layers. of: the placement of the layers left out,
 * whose bytes are taken off the limits. */
static enum status schedule_part(const struct trials *x, const struct candidate *c, const struct candidate *of, int duties,
                                 struct sizes n, int level, double *messages, struct scheduled *larger)
{
    const int two = n.shorter < n.larger;
    const double times = two ? (double)(x->problem->model->config.layers - n.larger) / (double)(n.larger - n.shorter) : 0;
    double busy[2] = {0};
    struct scheduled models[2] = {{.trials = x, .strategy = &c->strategy, .layers = n.larger, .duties = duties, .level = level},
                                  {.trials = x,
                                   .strategy = &c->strategy,
                                   .layers = n.shorter,
                                   .limit = {INT64_MAX, INT64_MAX, INT64_MAX},
                                   .duties = duties,
                                   .level = level}},
                     *shorter = &models[1];
    for (int i = 0; i < 2 && messages; i++)
        models[i].messages = &busy[i];
    limit_layers(x, c, of, n.larger, models[0].limit);
    const int first = two && c->excess > TRIAL_LARGER_FIRST ? 1 : 1 + two; /* scheduled at the same time */
    TRY(parallel_run(schedule_layers, models, sizeof *models, first));
    if (two && (first == 1 || shorter->level != models[0].level)) {
        shorter->level = models[0].level;
        TRY(schedule_layers(shorter));
    }
    *larger = models[0];
    larger->messages = NULL;
    if (two) {
        larger->seconds += times * (larger->seconds - shorter->seconds);
        larger->slow += times * (larger->slow - shorter->slow);
    }
    if (messages)
        *messages = busy[0] + times * (busy[0] - busy[1]);
    return OK;
}

/* Finds the bytes that live at once in the serial order of a model of n layers, from samples. *hopeless: 1 if they are above the
 * limits, so that no schedule fits. */
static enum status find_hopeless(const struct trials *x, const struct candidate *c, const struct candidate *of, int64_t n,
                                 struct scheduled *out, int *hopeless)
{
    struct model *m;
    struct need need;
    enum tier which;
    *out = (struct scheduled){.layers = n, .level = FIT_SERIAL};
    TRY(problem_shortened(x->problem, n, &m));
    const struct subject subject = {x->problem, m, memo_model(m)};
    const enum status st = measure_sampled(&subject, &c->strategy, plan_first_duties(&x->problem->request), hopeless, &need);
    model_destroy(m);
    TRY(st);
    *hopeless = *hopeless && !is_near_tables(&need);
    if (!*hopeless)
        return OK;
    need_bytes(&need, out->arena);
    limit_layers(x, c, of, n, out->limit);
    *hopeless = !fit_within(out->arena, out->limit, &which);
    return OK;
}

/* Tries c as a part of the model `of`. */
static enum status trial_as_part(const struct trials *x, struct candidate *c, int level, const struct candidate *of)
{
    const double micro_batches = (double)x->problem->request.grad_accum;
    const struct sizes n = sizes_of(x, c, 1);
    struct scheduled larger;
    int hopeless = 0;
    if (n.shorter < n.larger && c->excess > TRIAL_LARGER_FIRST && c->strategy.placement.promoted_layers == 0)
        TRY(find_hopeless(x, c, of, n.larger, &larger, &hopeless));
    if (hopeless) {
        conclude(x, c, &larger);
        c->seconds = c->slow = c->estimate;
        return OK;
    }
    TRY(schedule_part(x, c, of, 0, n, level, NULL, &larger));
    conclude(x, c, &larger);
    c->seconds = fmax(c->estimate, larger.seconds * micro_batches);
    c->slow = fmax(c->seconds, larger.slow * micro_batches);
    if (c->bytes[TIER_DEVICE] == FIT_NOWHERE)
        c->seconds = c->slow = c->estimate;
    return n.shorter < n.larger || c->excess > 1 || c->excess <= TRIAL_TIGHT ? OK : also_without_update(x, c, &larger);
}

/* Tries c with no layer and with every layer promoted, and interpolates: a few layers cannot hold the model's share of promoted
 * ones. */
static enum status trial_promoted(const struct trials *x, struct candidate *c, int level)
{
    int64_t layers = x->problem->model->config.layers, all = strategy_promotable_layers(&c->strategy, layers);
    double share = fmin(1, c->strategy.placement.promoted_layers / (double)all);
    struct candidate none = *c, every = *c;
    none.strategy.placement.promoted_layers = 0;
    every.strategy.placement.promoted_layers = (int)all;
    estimator_judge(x->search->estimator, &none);
    estimator_judge(x->search->estimator, &every);
    TRY(trial_as_part(x, &none, level, c));
    TRY(trial_as_part(x, &every, level, c));
    c->seconds = fmax(c->estimate, (1 - share) * none.seconds + share * every.seconds);
    c->slow = fmax(c->seconds, (1 - share) * none.slow + share * every.slow);
    int nowhere = none.bytes[TIER_DEVICE] == FIT_NOWHERE || every.bytes[TIER_DEVICE] == FIT_NOWHERE;
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = nowhere ? FIT_NOWHERE : (int64_t)((1 - share) * (double)none.bytes[t] + share * (double)every.bytes[t]);
    c->excess = budget_excess(c->bytes, x->problem->limit);
    c->level = none.level > every.level ? none.level : every.level;
    c->tried = 1;
    c->all_layers = 0;
    return OK;
}

/* Tries c at a level or a later one. At FIT_SERIAL only bytes are found. */
enum status trial_run(const struct trials *x, struct candidate *c, int level)
{
    if (c->bytes[TIER_DEVICE] == FIT_NOWHERE) { /* by estimate */
        c->tried = 1;
        c->level = level;
        return OK;
    }
    if (level == FIT_SERIAL)
        return trial_serially(x, c);
    TRY(c->strategy.placement.promoted_layers > 0 && trial_layers(x, c) < x->problem->model->config.layers
            ? trial_promoted(x, c, level)
            : trial_as_part(x, c, level, c));
    if (c->excess <= 1)
        progress_found(c->seconds);
    return OK;
}

enum status trial_step(const struct trials *x, const struct candidate *c, struct step_trial *out)
{
    const int first = plan_first_duties(&x->problem->request), both = DUTY_FORWARD | DUTY_BACKWARD;
    const int64_t n = x->problem->request.grad_accum;
    const struct {
        int duties;
        int64_t times;
    } programs[] = {{first, 1}, {both, n - 2}, {both | DUTY_LAST, n > 1}};
    *out = (struct step_trial){.fits = 1};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        struct scheduled larger;
        double messages;
        if (programs[i].times <= 0)
            continue;
        TRY(schedule_part(x, c, c, programs[i].duties, sizes_of(x, c, STEP_LAYERS), c->level, &messages, &larger));
        out->seconds += (double)programs[i].times * larger.seconds;
        out->fits &= larger.arena[TIER_DEVICE] != FIT_NOWHERE && isfinite(larger.seconds);
        out->messages = messages / larger.seconds;
        for (int t = 0; t < TIERS; t++)
            out->fits &= larger.arena[t] <= larger.limit[t];
    }
    return OK;
}
