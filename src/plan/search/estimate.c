/* Estimates of whole placements, put together from the measured needs of a few short programs. */
#include "plan/search/estimate.h"

#include "base/parallel.h"
#include "base/sys.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/memo.h"
#include "plan/search/needs.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Models that are measured: a short one, and for each kind of layer the short one with further layers of that kind. */
enum { SHORT, MEASURED_MOST = 1 + MODEL_KINDS };

struct estimator {
    const struct problem *problem;
    struct options options;
    double micro_batches, layers;
    struct differences *all,
        *longer; /* `all`: for a model of all layers; `longer`: for a model with one layer more, the mean of all kinds */
    struct differences *measured;    /* one for each measured model */
    struct sums *sums, *longer_sums; /* needs of `all` and `longer`, added up */
    int short_kinds[MODEL_KINDS];    /* number of layers of each kind in the short model */
    double instrs, layer_instrs;
    struct strategy fixed;
    int64_t short_layers;
    int split;         /* 1: differences.beside is known */
    int brings_nearer; /* 1: placements are brought to the options that are listed */
    int nowhere;       /* 1: every placement's program is larger than a program's tables can be */
};

/* Changes of a model's needs if one class takes another of its options than the first, for some number of layers. */
struct differences {
    struct need base, params[3], grads[3], acts[OPTIONS_ACTS][2]; /* acts: with most and fewest chunks kept */
    /* change by activations split between two tiers, beyond the changes in proportion to chunks */
    struct need beside[OPTIONS_ACTS];
    struct {
        struct need base, params[3], grads[3], optim[3];
    } update
        [2]; /* the update's program alone, by place of the update (device, host); classes change its needs otherwise than a step's */
};

/* Needs by the options of all classes but activations, which are judged many times each. */
struct sums {
    struct need step[3][3];         /* by place of parameters and of gradients: a step with the first option of activations */
    struct need update[2][3][3][3]; /* by place of the update, of parameters, gradients and optimizer state */
};

/* Adds up the differences of each class. */
static void sums_find(const struct options *o, const struct differences *d, struct sums *out)
{
    for (int p = 0; p < o->n[DECISION_PARAMS]; p++)
        for (int g = 0; g < o->n[DECISION_GRADS]; g++) {
            struct need *step = &out->step[p][g];
            *step = d->base;
            need_add(step, 1, &d->params[p]);
            need_add(step, 1, &d->grads[g]);
            for (int u = 0; u < o->n[DECISION_UPDATE]; u++)
                for (int x = 0; x < o->n[DECISION_OPTIM]; x++) {
                    struct need *update = &out->update[u][p][g][x];
                    *update = d->update[u].base;
                    need_add(update, 1, &d->update[u].params[p]);
                    need_add(update, 1, &d->update[u].grads[g]);
                    need_add(update, 1, &d->update[u].optim[x]);
                }
        }
}

/* Measures by how much each further option of a class changes the needs `first`, measured with the first option. */
static enum status find_elsewhere(const struct subject *x, const struct options *o, const struct strategy *s, int duties,
                                  enum decision_id class, const struct need *first, struct need *out)
{
    struct strategy elsewhere = *s;
    for (int i = 1; i < o->n[class]; i++) {
        decision_set(&elsewhere, class, o->value[class][i]);
        TRY(needs_find(x, &elsewhere, duties, &out[i]));
        need_add(&out[i], -1, first);
    }
    return OK;
}

static int chunks_of(const struct strategy *s)
{
    return (int)ceil_div(s->rows, s->key.row_chunk);
}

/* Sets the i-th tier of activations and of hidden states between layers. */
static void set_activations(const struct options *o, int i, struct strategy *s)
{
    s->placement.acts = (enum residency)o->value[DECISION_ACTS][i];
    s->placement.passing = (enum residency)o->value[DECISION_PASSING][i];
}

/* Measures the first option of every class alone. */
static enum status find_base(const struct subject *x, const struct options *o, const struct strategy *fixed, int duties,
                             struct differences *d)
{
    const struct strategy base = options_first(o, fixed);
    memset(d, 0, sizeof *d);
    return needs_find(x, &base, duties, &d->base);
}

static enum status find_differences(const struct subject *x, const struct options *o, const struct strategy *fixed, int duties,
                                    struct differences *d)
{
    struct strategy base = options_first(o, fixed);
    const int n_acts = o->n[DECISION_ACTS];
    memset(d, 0, sizeof *d);
    TRY(needs_find(x, &base, duties, &d->base));
    for (int i = 0; i < n_acts; i++)
        for (int fewest = 0; fewest < 2; fewest++) {
            struct strategy s = base;
            set_activations(o, i, &s);
            s.placement.kept_chunks = fewest ? options_fewest_kept(o) : options_most_kept(o);
            if (i + fewest == 0)
                continue;
            if (fewest && o->n[DECISION_KEPT_CHUNKS] == 1) {
                d->acts[i][1] = d->acts[i][0];
                continue;
            }
            TRY(needs_find(x, &s, duties, &d->acts[i][fewest]));
            need_add(&d->acts[i][fewest], -1, &d->base);
        }
    /* measured with activations off the device, the case when memory is scarce: the peak then comes at another moment */
    struct strategy away = base;
    struct need first = d->base;
    set_activations(o, n_acts > 1, &away);
    if (n_acts > 1)
        need_add(&first, 1, &d->acts[1][0]);
    TRY(find_elsewhere(x, o, &away, duties, DECISION_PARAMS, &first, d->params));
    TRY(find_elsewhere(x, o, &away, duties, DECISION_GRADS, &first, d->grads));
    for (int u = 0; u < o->n[DECISION_UPDATE]; u++) {
        base.placement.update_on_host = o->value[DECISION_UPDATE][u];
        TRY(needs_find(x, &base, DUTY_UPDATE, &d->update[u].base));
        TRY(find_elsewhere(x, o, &base, DUTY_UPDATE, DECISION_PARAMS, &d->update[u].base, d->update[u].params));
        TRY(find_elsewhere(x, o, &base, DUTY_UPDATE, DECISION_GRADS, &d->update[u].base, d->update[u].grads));
        TRY(find_elsewhere(x, o, &base, DUTY_UPDATE, DECISION_OPTIM, &d->update[u].base, d->update[u].optim));
    }
    return OK;
}

/* Measures the fixed cost of activations split between two tiers: keeps half of the chunks on the device and subtracts the
 * changes that are in proportion to chunks. */
static enum status find_beside(const struct subject *x, const struct options *o, const struct strategy *fixed, int duties,
                               struct differences *d)
{
    struct strategy s = options_first(o, fixed);
    double chunks = chunks_of(fixed);
    s.placement.device_chunks = (int)chunks / 2;
    s.placement.kept_chunks = options_fewest_kept(o);
    for (int i = 1; i < o->n[DECISION_ACTS]; i++) {
        struct need half;
        set_activations(o, i, &s);
        TRY(needs_find(x, &s, duties, &half));
        need_add(&half, -1, &d->base);
        need_add(&half, s.placement.device_chunks / chunks - 1, &d->acts[i][1]);
        need_add(&half, -s.placement.device_chunks / chunks, &d->acts[0][1]);
        memset(&d->beside[i], 0, sizeof d->beside[i]);
        need_add(&d->beside[i], chunks / s.placement.device_chunks, &half);
    }
    return OK;
}

static void differences_add(struct differences *a, double factor, const struct differences *b)
{
    add_terms((double *)a, factor, (const double *)b, (int)(sizeof *a / sizeof(double)));
}

/* Returns the least seconds of a pass: those of its busiest lane or link. */
static double pass_seconds(const struct cost_model *c, const double busy[LANES])
{
    double most = 0, carried = 0;
    for (int l = 0; l < LANES; l++) {
        most = larger(most, busy[l]);
        carried += lane_is_comm((enum lane)l) ? busy[l] : 0;
    }
    if (c->chained)
        most = larger(most, carried);
    for (int k = 0; k < LINKS; k++) {
        double asked = 0;
        for (int l = 0; l < LANES; l++)
            asked += busy[l] * c->demand[l][k];
        most = larger(most, asked);
    }
    return most;
}

/* Returns the seconds of a pass if the next pass does its drive writes. */
static double pass_without_writes(const struct cost_model *c, const double busy[LANES])
{
    double rest[LANES];
    memcpy(rest, busy, sizeof rest);
    rest[LANE_WRITE] = 0;
    return pass_seconds(c, rest);
}

/* Factors by which the differences of activations are multiplied: shares of a layer's row chunks. An open tier is one that the settings
 * leave to the search. */
struct shares {
    double most,
        fewest; /* chunks beyond the first open tier: those whose values are kept; those whose values are computed again */
    double
        fewest_there; /* chunks at the first open tier whose values are computed again; the device, if several tiers are open */
};

/* Returns the factors for s. The first chunks are kept and the last ones are on the device; elsewhere each chunk adds the
 * difference of kept or of recomputed chunks. */
static struct shares shares_of(const struct options *o, const struct strategy *s, double layers)
{
    double chunks = chunks_of(s), most = options_most_kept(o), span = most - options_fewest_kept(o);
    double elsewhere = s->placement.acts == RES_DEVICE ? 1 : 1 - s->placement.device_layers / layers;
    double others = s->placement.acts == RES_DEVICE ? chunks : chunks - s->placement.device_chunks;
    if (span == 0)
        return (struct shares){elsewhere * others / chunks, 0, 0};
    double kept = fmin(s->placement.kept_chunks, others), not_kept = (others - kept - kept * (chunks - most) / most) / chunks;
    return (struct shares){elsewhere * kept / most, elsewhere * not_kept,
                           (most - s->placement.kept_chunks) / span - elsewhere * not_kept};
}

/* Adds up one placement's needs for a step in a model of `layers` layers. Returns those of the update alone. */
static const struct need *add_up(const struct estimator *e, int longer, const struct strategy *s, double layers,
                                 struct need *step)
{
    const struct options *o = &e->options;
    const struct differences *d = longer ? e->longer : e->all;
    const struct sums *sums = longer ? e->longer_sums : e->sums;
    int p = options_index(o, DECISION_PARAMS, s), g = options_index(o, DECISION_GRADS, s),
        x = options_index(o, DECISION_OPTIM, s), a = options_index(o, DECISION_ACTS, s),
        u = o->n[DECISION_UPDATE] > 1 && s->placement.update_on_host;
    struct shares of = shares_of(o, s, layers);
    *step = sums->step[p][g];
    need_add(step, of.most, &d->acts[a][0]);
    need_add(step, of.fewest, &d->acts[a][1]);
    need_add(step, of.fewest_there, &d->acts[0][1]);
    need_add(step, 1 - of.most - of.fewest, &d->beside[a]);
    return &sums->update[u][p][g][x];
}

/* Sets the short-lived bytes of a's layers: those of the promoted layers if all are promoted; if not, in the update, the larger
 * of both kinds. */
static void mix_short_lived(struct need *a, const struct need *near, const struct need *far, int all)
{
    for (int part = 0; part < PARTS; part++)
        for (int unit = UNIT_LAYER; unit <= UNIT_LAST_LAYER; unit++)
            for (int t = 0; t < TIERS; t++) {
                int k = part * UNITS + unit;
                if (all)
                    a->short_lived[k][t] = near->short_lived[k][t];
                else if (part == PART_UPDATE)
                    a->short_lived[k][t] = fmax(near->short_lived[k][t], far->short_lived[k][t]);
            }
}

/* Adds the difference that promoted layers make: for each, one more layer there minus one more layer here. */
static void move_promoted(const struct estimator *e, int longer, const struct strategy *s, double layers, struct need *step,
                          struct need *sum)
{
    struct strategy near = *s, far = *s;
    struct need more[4];
    const struct need *update[4];
    far.placement.promoted_layers = near.placement.promoted_layers = 0;
    *strategy_class(&near, s->placement.promoted_class) = s->placement.promote_tier;
    if (s->placement.promoted_class == CLASS_OPTIM && s->placement.promote_tier == RES_DEVICE)
        near.placement.update_on_host = 0;
    update[0] = add_up(e, 1, &near, e->layers + 1, &more[0]);
    update[1] = add_up(e, 0, &near, e->layers, &more[1]);
    update[2] = add_up(e, 1, &far, e->layers + 1, &more[2]);
    update[3] = add_up(e, 0, &far, e->layers, &more[3]);
    for (int i = 0; i < 4; i++) {
        double sign = i == 0 || i == 3 ? layers : -layers;
        need_add(step, sign, &more[i]);
        need_add(sum, sign, update[i]);
    }
    int all = s->placement.promoted_layers >= (int64_t)e->layers, there = longer ? 0 : 1;
    mix_short_lived(step, &more[there], &more[there + 2], all);
    mix_short_lived(sum, update[there], update[there + 2], all);
}

/* A placement's needs: of a step, and of the update alone. */
struct needs {
    struct need step, promoted;
    const struct need *update; /* `promoted`, or one of the estimator's sums */
};

/* Finds one placement's needs in the model, or in a model of one layer more. */
static void needs_of(const struct estimator *e, int longer, const struct strategy *s, struct needs *out)
{
    double layers = e->layers + longer;
    out->update = add_up(e, longer, s, layers, &out->step);
    if (s->placement.promoted_layers == 0)
        return;
    out->promoted = *out->update;
    out->update = &out->promoted;
    move_promoted(e, longer, s,
                  (double)min_i64(s->placement.promoted_layers, strategy_promotable_layers(s, (int64_t)e->layers)) * layers /
                      e->layers,
                  &out->step, &out->promoted);
}

static void bytes_of(const struct needs *x, int64_t out[TIERS])
{
    double most[TIERS] = {0};
    for (int k = 0; k < MOMENTS; k++)
        for (int t = 0; t < TIERS; t++)
            most[t] = larger(most[t], x->step.short_lived[k][t] + x->update->short_lived[k][t]);
    for (int t = 0; t < TIERS; t++)
        out[t] = (int64_t)(x->update->persistent[t] + most[t]);
}

/* Returns the seconds of a forward pass before a backward pass of `backward` seconds. Its unfinished drive writes wait on the
 * host, beside c->bytes.
 *
 * Activations written last are read first, except for the layers on the device: while these layers are computed, nothing more is
 * written. */
static double forward_seconds(const struct estimator *e, const struct candidate *c, const double busy[LANES], double saved,
                              double backward)
{
    double rest[LANES], room = fmax(0, (double)(e->problem->limit[TIER_HOST] - c->bytes[TIER_HOST])),
                        later = room / e->problem->cost.lane_bytes[LANE_WRITE],
                        last = c->strategy.placement.device_layers / e->layers;
    memcpy(rest, busy, sizeof rest);
    rest[LANE_WRITE] = fmax(0, busy[LANE_WRITE] - later);
    double trailing = fmin(1, last + 1 / e->layers) * backward;
    return fmax(pass_seconds(&e->problem->cost, rest), saved - fmin(trailing, later - last * busy[LANE_COMPUTE]));
}

void estimator_judge(const struct estimator *e, struct candidate *c)
{
    const struct strategy *s = &c->strategy;
    struct needs need;
    if (e->brings_nearer)
        options_bring_nearer(&e->options, &c->strategy);
    double forward[LANES], all[LANES], more = e->micro_batches;
    int64_t longer[TIERS];
    needs_of(e, 1, s, &need);
    bytes_of(&need, longer);
    needs_of(e, 0, s, &need);
    bytes_of(&need, c->bytes);
    const struct need *step = &need.step, *update = need.update;
    for (int t = 0; t < TIERS; t++)
        c->layer_bytes[t] = longer[t] - c->bytes[t];
    c->traffic = c->messages = 0;
    for (int l = 0; l < LANES; l++) {
        forward[l] = step->busy[FORWARD][l] + update->busy[FORWARD][l];
        all[l] = more * (step->busy[FORWARD][l] + step->busy[BACKWARD][l]) + update->busy[FORWARD][l];
        c->traffic += l == LANE_COMPUTE ? 0 : all[l];
        c->messages += lane_is_comm((enum lane)l) ? all[l] : 0;
    }
    c->compute = all[LANE_COMPUTE];
    c->least_compute = more * step->least_compute;
    c->written = forward[LANE_WRITE] + (more - 1) * step->busy[FORWARD][LANE_WRITE] + more * step->busy[BACKWARD][LANE_WRITE];
    double backward = pass_without_writes(&e->problem->cost, step->busy[BACKWARD]),
           first = forward_seconds(e, c, forward, step->saved, backward),
           further = more > 1 ? forward_seconds(e, c, step->busy[FORWARD], step->saved, backward) : 0;
    c->estimate = first + (more - 1) * further + more * backward;
    c->estimate = fmax(c->estimate, pass_seconds(&e->problem->cost, all));
    c->seconds = c->estimate;
    c->excess = budget_excess(c->bytes, e->problem->limit);
    if (e->nowhere) {
        c->bytes[TIER_DEVICE] = FIT_NOWHERE;
        c->excess = budget_excess(c->bytes, e->problem->limit);
    }
    c->redundant = (s->placement.device_layers + s->placement.device_chunks > 0 &&
                    /* redundant: without moving activations it would fit as well, or the host would update state that lies on the
                     * device */
                    s->placement.acts == RES_DEVICE) ||
                   (e->options.n[DECISION_UPDATE] > 1 && s->placement.update_on_host && s->placement.optim == RES_DEVICE);
}

typedef enum status find(const struct subject *x, const struct options *o, const struct strategy *fixed, int duties,
                         struct differences *d);

/* One model to be measured, as a job. */
struct measuring {
    struct estimator *e;
    int which; /* SHORT, or 1 + the kind of layer that it has more of */
    find *what;
};

static enum status measure_layers(void *job)
{
    const struct measuring *x = job;
    struct estimator *e = x->e;
    struct model *few = NULL;
    const int64_t more = x->which == SHORT ? 0 : e->fixed.placement.keep_inputs;
    int duties = DUTY_FORWARD | DUTY_BACKWARD | DUTY_LAST | (e->problem->request.grad_accum == 1 ? DUTY_FIRST : 0);
    if (e->problem->request.evaluation)
        duties = DUTY_FORWARD;
    int of_kind[MODEL_KINDS];
    TRY(problem_few(e->problem, e->short_layers, more, x->which - 1, x->which == SHORT ? e->short_kinds : of_kind, &few));
    const struct subject subject = {e->problem, few, memo_model(few)};
    enum status st = x->what(&subject, &e->options, &e->fixed, duties, &e->measured[x->which]);
    model_destroy(few);
    return st;
}

static void give_up(struct estimator *e)
{
    e->nowhere = 1;
    e->instrs = e->layer_instrs = INFINITY; /* too many instructions for any trial of all layers */
}

/* Derives the differences of a model of all layers, and of one layer more, from those of the measured models. */
static void combine(struct estimator *e)
{
    const struct model *m = e->problem->model;
    const double turn = (double)e->fixed.placement.keep_inputs;
    memcpy(e->all, &e->measured[SHORT], sizeof *e->all);
    memset(e->longer, 0, sizeof *e->longer);
    for (int kind = 0; kind < m->n_kinds; kind++) {
        struct differences layer = e->measured[1 + kind];
        differences_add(&layer, -1, &e->measured[SHORT]);
        differences_add(&layer, 1 / turn - 1, &layer);
        differences_add(e->all, (double)(m->kinds[kind].layers - e->short_kinds[kind]), &layer);
        differences_add(e->longer, m->kinds[kind].layers / e->layers, &layer);
    }
    e->instrs = e->all->base.instrs;
    e->layer_instrs = e->longer->base.instrs;
    if (e->all->base.buffers >= PROGRAM_MOST_NAMES || e->all->base.versions >= PROGRAM_MOST_VERSIONS)
        give_up(e);
    differences_add(e->longer, 1, e->all);
    sums_find(&e->options, e->all, e->sums);
    sums_find(&e->options, e->longer, e->longer_sums);
}

/* Measures the models; gives up without an error where even programs of a few layers are beyond the tables. */
static enum status measure_if_possible(struct estimator *e, find *what)
{
    struct measuring models[MEASURED_MOST];
    const int n = 1 + e->problem->model->n_kinds;
    for (int i = 0; i < n; i++)
        models[i] = (struct measuring){e, i, what};
    enum status st = parallel_run(measure_layers, models, sizeof *models, n);
    if (st == ERR_NOFIT)
        give_up(e);
    else if (st == OK)
        combine(e);
    return st == ERR_NOFIT ? OK : st;
}

enum status estimator_split(struct estimator *e)
{
    if (!e->split && !e->nowhere)
        TRY(measure_if_possible(e, find_beside));
    e->split = 1;
    return OK;
}

static enum status create(const struct problem *p, const struct options *o, const struct strategy *fixed, find *what,
                          struct estimator **out)
{
    struct estimator *e = sys_calloc(1, sizeof *e);
    struct differences *d = sys_calloc(2 + MEASURED_MOST, sizeof *d);
    struct sums *sums = sys_calloc(2, sizeof *sums);
    const int64_t layers = p->model->config.layers, period = fixed->placement.keep_inputs,
                  few = ESTIMATE_LAYERS + p->model->n_kinds - 1 + (period > 1 ? period : 0);
    enum status st = e && d && sums ? OK : status_no_memory("while planning");
    if (st == OK) {
        *e = (struct estimator){.problem = p,
                                .options = *o,
                                .micro_batches = (double)p->request.grad_accum,
                                .layers = (double)layers,
                                .all = d,
                                .longer = d + 1,
                                .measured = d + 2,
                                .sums = sums,
                                .longer_sums = sums + 1,
                                .fixed = *fixed,
                                .short_layers = layers < few + period ? layers : few};
        st = measure_if_possible(e, what);
    }
    if (st == OK) {
        *out = e;
        return OK;
    }
    free(d);
    free(sums);
    free(e);
    return st;
}

enum status estimator_measure(const struct problem *p, const struct options *o, const struct strategy *fixed,
                              struct estimator **out)
{
    return create(p, o, fixed, find_differences, out);
}

void estimator_bring_nearer(struct estimator *e)
{
    e->brings_nearer = 1;
}

enum status estimator_count(const struct problem *p, const struct options *o, const struct strategy *fixed, double *instrs)
{
    struct estimator *e;
    TRY(create(p, o, fixed, find_base, &e));
    *instrs = e->instrs;
    estimator_destroy(e);
    return OK;
}

void estimator_destroy(struct estimator *e)
{
    if (e) {
        free(e->all);
        free(e->sums);
    }
    free(e);
}

const struct options *estimator_options(const struct estimator *e)
{
    return &e->options;
}

void estimator_instrs(const struct estimator *e, double *all, double *layer)
{
    *all = e->instrs;
    *layer = e->layer_instrs;
}
