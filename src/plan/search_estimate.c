/* Estimates from a few short programs. */
#include "plan/search_estimate.h"

#include "base/parallel.h"
#include "base/sys.h"
#include "plan/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, BACKWARD, PASSES };

/* What a program needs, in terms that add up over layers and classes. */
struct need {
    double busy[PASSES][LANES];                   /* seconds */
    double saved;                                 /* of these, of the forward pass's writes of activations to the drives */
    double persistent[TIERS], short_lived[TIERS]; /* bytes; the most at one time */
    double least_compute;                         /* seconds of attention, and of products at the best rate */
    double instrs;
};

/* a += factor * b, n terms of both */
static void add_terms(double *a, double factor, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        a[i] += factor * b[i];
}

static void need_add(struct need *a, double factor, const struct need *b)
{
    add_terms((double *)a, factor, (const double *)b, (int)(sizeof *a / sizeof(double)));
}

struct estimator {
    const struct cost_model *cost;
    const int64_t *limit;
    struct options options;
    double micro_batches, layers;
    struct differences *all, *longer; /* of all layers, and of one more */
    double instrs, layer_instrs;
};

static int residencies(enum offload given, enum residency out[3])
{
    static const enum residency all[3] = {RES_DEVICE, RES_HOST, RES_NVME};
    if (given == OFFLOAD_AUTO) {
        memcpy(out, all, sizeof all);
        return 3;
    }
    out[0] = given == OFFLOAD_CPU ? RES_HOST : given == OFFLOAD_NVME ? RES_NVME : RES_DEVICE;
    return 1;
}

/* Given, gradients are where activations are; else on the device or the host, too, where all activations would not fit. */
static int activations(enum offload given, struct options *o)
{
    static const enum residency acts[OPTIONS_ACTS] = {RES_DEVICE, RES_HOST, RES_HOST, RES_NVME, RES_NVME},
                                passing[OPTIONS_ACTS] = {RES_DEVICE, RES_DEVICE, RES_HOST, RES_HOST, RES_NVME};
    if (given != OFFLOAD_AUTO) {
        residencies(given, o->acts);
        o->passing[0] = o->acts[0];
        return 1;
    }
    memcpy(o->acts, acts, sizeof acts);
    memcpy(o->passing, passing, sizeof passing);
    return OPTIONS_ACTS;
}

void options_of(const struct settings *s, const struct strategy *fixed, int layers, struct options *o)
{
    int chunks = (int)ceil_div(fixed->rows, fixed->row_chunk);
    o->n_params = residencies(s->params, o->params);
    o->n_grads = residencies(s->grads, o->grads);
    o->n_optim = residencies(s->optim, o->optim);
    o->n_acts = activations(s->acts, o);
    o->update[0] = s->update == UPDATE_HOST;
    o->update[1] = 1;
    o->n_update = s->update == UPDATE_AUTO ? 2 : 1;
    o->n_device_layers = 0;
    for (int n = 0; n < 8 && n < layers && (n == 0 || s->acts == OFFLOAD_AUTO); n = n ? 2 * n : 1)
        o->device_layers[o->n_device_layers++] = n;
    o->n_kept = 0;
    for (int quarter = 4; quarter >= 0; quarter--) {
        double alpha = s->alpha >= 0 ? s->alpha : quarter / 4.0;
        int kept = (int)(alpha * chunks + 0.5);
        if (o->n_kept == 0 || o->kept[o->n_kept - 1] != kept)
            o->kept[o->n_kept++] = kept;
    }
}

int options_count(const struct options *o)
{
    return o->n_params * o->n_grads * o->n_optim * o->n_acts * o->n_update * o->n_device_layers * o->n_kept;
}

void options_place(const struct options *o, int i, struct strategy *out)
{
    out->kept_chunks = o->kept[i % o->n_kept];
    out->device_layers = o->device_layers[(i /= o->n_kept) % o->n_device_layers];
    out->update_on_host = o->update[(i /= o->n_device_layers) % o->n_update];
    out->acts = o->acts[(i /= o->n_update) % o->n_acts];
    out->passing = o->passing[i % o->n_acts];
    out->optim = o->optim[(i /= o->n_acts) % o->n_optim];
    out->grads = o->grads[(i /= o->n_optim) % o->n_grads];
    out->params = o->params[i / o->n_grads];
}

static int index_of(const enum residency *all, int n, enum residency r)
{
    for (int i = 1; i < n; i++)
        if (all[i] == r)
            return i;
    return 0;
}

static int acts_index(const struct options *o, const struct strategy *s)
{
    for (int i = 1; i < o->n_acts; i++)
        if (o->acts[i] == s->acts && o->passing[i] == s->passing)
            return i;
    return 0;
}

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

/* Of products, by type. */
static void best_rates(const struct cost_model *cost, double out[COST_TYPES])
{
    for (int t = 0; t < COST_TYPES; t++) {
        out[t] = 1;
        for (int i = 0; i < GEMM_LAYOUTS * GEMM_SHAPES; i++)
            out[t] = fmax(out[t], cost->device.gemm[t].flops[i / GEMM_SHAPES][i % GEMM_SHAPES]);
    }
}

static enum status measure(const struct model *m, const struct strategy *s, const struct cost_model *cost, int role,
                           struct need *out)
{
    struct program *p;
    struct io_buffers io;
    TRY(lower_program(m, s, role, &io, &p));
    double best[COST_TYPES];
    best_rates(cost, best);
    memset(out, 0, sizeof *out);
    out->instrs = p->n_instrs;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        double seconds = cost_seconds(cost, in, program_call(p, in));
        out->busy[in->phase == 'b' ? BACKWARD : FORWARD][in->lane] += seconds;
        if (in->lane == LANE_WRITE && in->phase == 'f' && p->tensors[p->operands[in->first_operand].tensor].class == CLASS_ACT)
            out->saved += seconds;
        if (in->op == OP_ATTN_FWD || in->op == OP_ATTN_BWD)
            out->least_compute += seconds;
        else if (in->op == OP_GEMM)
            out->least_compute += program_call(p, in)->flops / best[cost_type(in->op, &program_call(p, in)->attrs)];
    }
    for (int b = 0; b < p->n_persistent; b++)
        out->persistent[p->buffers[b].tier] += (double)round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    int64_t live[TIERS];
    enum status st = pack_live_in_order(p, live);
    for (int t = 0; st == OK && t < TIERS; t++)
        out->short_lived[t] = (double)live[t];
    program_destroy(p);
    return st;
}

/* Models of this many layers and of a few more stand for all: the first and the last layer differ from the others, and what more
 * of them add is the difference. Layers whose inputs are kept and others take turns: it is that of a whole turn. */
enum { FEW = 2 };

/* What each class elsewhere adds to the first option of every class, of a model of so many layers. */
struct differences {
    struct need base, params[3], grads[3], acts[OPTIONS_ACTS][2]; /* acts: with most and fewest chunks kept */
    struct {
        struct need base, params[3], grads[3], optim[3];
    } update[2]; /* the update alone, on the device and on the host: its copies of each class are apart from the others' */
};

/* A program to be measured. */
struct subject {
    const struct model *m;
    const struct cost_model *cost;
    int role;
};

/* What each option but the first adds for the class of the strategy that is at `class`, which is left at the first. */
static enum status find_elsewhere(const struct subject *x, const struct strategy *s, enum residency *class,
                                  const enum residency *options, int n, const struct need *first, struct need *out)
{
    enum status st = OK;
    for (int i = 1; i < n && st == OK; i++) {
        *class = options[i];
        st = measure(x->m, s, x->cost, x->role, &out[i]);
        need_add(&out[i], -1, first);
    }
    *class = options[0];
    return st;
}

static enum status find_differences(const struct model *m, const struct options *o, const struct strategy *fixed,
                                    const struct cost_model *cost, int role, struct differences *d)
{
    struct strategy base = *fixed;
    struct subject x = {m, cost, role}, alone = {m, cost, ROLE_UPDATE};
    base.params = o->params[0];
    base.grads = o->grads[0];
    base.optim = o->optim[0];
    base.acts = o->acts[0];
    base.passing = o->passing[0];
    base.update_on_host = o->update[0];
    base.kept_chunks = o->kept[0];
    memset(d, 0, sizeof *d);
    TRY(measure(m, &base, cost, role, &d->base));
    TRY(find_elsewhere(&x, &base, &base.params, o->params, o->n_params, &d->base, d->params));
    TRY(find_elsewhere(&x, &base, &base.grads, o->grads, o->n_grads, &d->base, d->grads));
    for (int i = 0; i < o->n_acts; i++)
        for (int fewest = 0; fewest < 2; fewest++) {
            struct strategy s = base;
            s.acts = o->acts[i];
            s.passing = o->passing[i];
            s.kept_chunks = o->kept[fewest ? o->n_kept - 1 : 0];
            if (i + fewest == 0)
                continue;
            if (fewest && o->n_kept == 1) {
                d->acts[i][1] = d->acts[i][0];
                continue;
            }
            TRY(measure(m, &s, cost, role, &d->acts[i][fewest]));
            need_add(&d->acts[i][fewest], -1, &d->base);
        }
    for (int u = 0; u < o->n_update; u++) {
        base.update_on_host = o->update[u];
        TRY(measure(m, &base, cost, ROLE_UPDATE, &d->update[u].base));
        TRY(find_elsewhere(&alone, &base, &base.params, o->params, o->n_params, &d->update[u].base, d->update[u].params));
        TRY(find_elsewhere(&alone, &base, &base.grads, o->grads, o->n_grads, &d->update[u].base, d->update[u].grads));
        TRY(find_elsewhere(&alone, &base, &base.optim, o->optim, o->n_optim, &d->update[u].base, d->update[u].optim));
    }
    return OK;
}

static void differences_add(struct differences *a, double factor, const struct differences *b)
{
    add_terms((double *)a, factor, (const double *)b, (int)(sizeof *a / sizeof(double)));
}

/* No lane and no link is faster than it can be. */
static double pass_seconds(const struct cost_model *c, const double busy[LANES])
{
    double most = 0;
    for (int l = 0; l < LANES; l++)
        most = fmax(most, busy[l]);
    for (int k = 0; k < LINKS; k++) {
        double asked = 0;
        for (int l = 0; l < LANES; l++)
            asked += busy[l] * c->demand[l][k];
        most = fmax(most, asked);
    }
    return most;
}

/* A pass may leave its writes to the drives behind. */
static double pass_without_writes(const struct cost_model *c, const double busy[LANES])
{
    double rest[LANES];
    memcpy(rest, busy, sizeof rest);
    rest[LANE_WRITE] = 0;
    return pass_seconds(c, rest);
}

/* The terms of one placement of a model of so many layers: of a step, and of the update alone. */
static void add_up(const struct options *o, const struct differences *d, const struct strategy *s, double layers,
                   struct need *step, struct need *update)
{
    int p = index_of(o->params, o->n_params, s->params), g = index_of(o->grads, o->n_grads, s->grads),
        x = index_of(o->optim, o->n_optim, s->optim), a = acts_index(o, s), u = o->n_update > 1 && s->update_on_host;
    double span = o->kept[0] - o->kept[o->n_kept - 1], fewest = span > 0 ? (o->kept[0] - s->kept_chunks) / span : 0;
    double elsewhere =
        s->acts == RES_DEVICE ? 1 : 1 - s->device_layers / layers; /* if several are open, the device is the first */
    *step = d->base;
    *update = d->update[u].base;
    need_add(update, 1, &d->update[u].params[p]);
    need_add(update, 1, &d->update[u].grads[g]);
    need_add(update, 1, &d->update[u].optim[x]);
    need_add(step, 1, &d->params[p]);
    need_add(step, 1, &d->grads[g]);
    need_add(step, elsewhere * (1 - fewest), &d->acts[a][0]);
    need_add(step, elsewhere * fewest, &d->acts[a][1]);
    need_add(step, (1 - elsewhere) * fewest, &d->acts[0][1]);
}

static void bytes_of(const struct need *step, const struct need *update, int64_t out[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        out[t] = (int64_t)(update->persistent[t] + fmax(step->short_lived[t], 0));
}

void estimator_judge(const struct estimator *e, struct candidate *c)
{
    const struct strategy *s = &c->strategy;
    struct need step, update;
    double forward[LANES], whole[LANES], more = e->micro_batches;
    int64_t longer[TIERS];
    add_up(&e->options, e->longer, s, e->layers + 1, &step, &update);
    bytes_of(&step, &update, longer);
    add_up(&e->options, e->all, s, e->layers, &step, &update);
    bytes_of(&step, &update, c->bytes);
    for (int t = 0; t < TIERS; t++)
        c->layer_bytes[t] = longer[t] - c->bytes[t];
    c->traffic = c->messages = 0;
    for (int l = 0; l < LANES; l++) {
        forward[l] = step.busy[FORWARD][l] + update.busy[FORWARD][l];
        whole[l] = more * (step.busy[FORWARD][l] + step.busy[BACKWARD][l]) + update.busy[FORWARD][l];
        c->traffic += l == LANE_COMPUTE ? 0 : whole[l];
        c->messages += lane_is_comm((enum lane)l) ? whole[l] : 0;
    }
    c->compute = whole[LANE_COMPUTE];
    c->least_compute = more * step.least_compute;
    c->written = forward[LANE_WRITE] + (more - 1) * step.busy[FORWARD][LANE_WRITE] + more * step.busy[BACKWARD][LANE_WRITE];
    double first = pass_without_writes(e->cost, forward), further = pass_without_writes(e->cost, step.busy[FORWARD]),
           backward = pass_without_writes(e->cost, step.busy[BACKWARD]);
    /* what was written last is read first, but for the layers on the device */
    double after = step.saved - fmin(1, (s->device_layers + 1) / e->layers) * backward;
    c->estimate = fmax(first, after) + (more - 1) * fmax(further, after) + more * backward;
    c->estimate = fmax(c->estimate, pass_seconds(e->cost, whole));
    c->seconds = c->estimate;
    c->excess = search_excess(c->bytes, e->limit);
    c->redundant =
        (s->device_layers > 0 && s->acts == RES_DEVICE) || /* or state of the device would go to the host to be updated */
        (e->options.n_update > 1 && s->update_on_host && s->optim == RES_DEVICE);
}

/* To be found for a model of so many layers. */
struct measuring {
    const struct model *m;
    const struct settings *s;
    const struct options *options;
    const struct strategy *fixed;
    const struct cost_model *cost;
    int64_t layers;
    struct differences *out;
};

static enum status measure_layers(void *job)
{
    const struct measuring *x = job;
    struct model *few = NULL;
    int role = ROLE_FORWARD | ROLE_BACKWARD | ROLE_LAST | (x->s->grad_accum == 1 ? ROLE_FIRST : 0);
    TRY(search_shortened(x->m, x->s, x->layers, &few));
    enum status st = find_differences(few, x->options, x->fixed, x->cost, role, x->out);
    model_destroy(few);
    return st;
}

enum status estimator_create(const struct model *m, const struct settings *s, const struct options *o,
                             const struct strategy *fixed, const struct cost_model *cost, const int64_t limit[TIERS],
                             struct estimator **out)
{
    struct estimator *e = sys_calloc(1, sizeof *e);
    struct differences *d = sys_calloc(2, sizeof *d), *layer = d + 1;
    int64_t layers = m->config.layers, period = fixed->input_every, measured = layers < FEW + period ? layers : FEW;
    struct measuring models[2] = {{m, s, o, fixed, cost, measured, d}, {m, s, o, fixed, cost, measured + period, layer}};
    enum status st = e && d ? OK : no_memory();
    TRY_GOTO(st, done);
    *e = (struct estimator){cost, limit, *o, (double)s->grad_accum, (double)layers, d, layer, 0, 0};
    TRY_GOTO(parallel_run(measure_layers, models, sizeof *models, 2), done);
    differences_add(layer, -1, d);
    differences_add(layer, 1 / (double)period - 1, layer);
    differences_add(d, (double)(layers - measured), layer);
    e->instrs = d->base.instrs;
    e->layer_instrs = layer->base.instrs;
    differences_add(layer, 1, d);
done:
    if (st == OK) {
        *out = e;
        return OK;
    }
    free(d);
    free(e);
    return st;
}

void estimator_destroy(struct estimator *e)
{
    if (e)
        free(e->all);
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
