/* Estimates of all placements from a few short programs. */
#include "plan/search.h"

#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, BACKWARD, PASSES };

/* What a program needs, in terms that add up over layers and classes. */
struct need {
    double busy[PASSES][LANES];                   /* seconds */
    double persistent[TIERS], short_lived[TIERS]; /* bytes; the most at one time */
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

/* The choices that the settings leave open. */
struct options {
    enum residency params[3], grads[3], optim[3], acts[3];
    int n_params, n_grads, n_optim, n_acts;
    int update[2], n_update;
    int device_layers[4], n_device_layers;
    int kept[5], n_kept; /* most first */
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

static void options_of(const struct settings *s, const struct strategy *fixed, int layers, struct options *o)
{
    int chunks = (int)ceil_div(fixed->rows, fixed->row_chunk);
    o->n_params = residencies(s->params, o->params);
    o->n_grads = residencies(s->grads, o->grads);
    o->n_optim = residencies(s->optim, o->optim);
    o->n_acts = residencies(s->acts, o->acts);
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

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

/* The most bytes of each tier that transient buffers hold at once, from their first instruction to their last. */
static enum status live_bytes(const struct program *p, double out[TIERS])
{
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_buffers + 1)),
        *last = sys_malloc(sizeof *last * (size_t)(p->n_buffers + 1));
    int64_t(*change)[TIERS] = sys_calloc((size_t)p->n_instrs + 1, sizeof *change), live[TIERS] = {0};
    enum status st = first && last && change ? OK : no_memory();
    for (int b = 0; st == OK && b < p->n_buffers; b++)
        first[b] = -1;
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            int b = p->operands[p->instrs[i].first_operand + k].buffer;
            first[b] = first[b] < 0 ? i : first[b];
            last[b] = i;
        }
    for (int b = p->n_persistent; st == OK && b < p->n_buffers; b++) {
        int64_t bytes = round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        if (first[b] < 0)
            continue;
        change[first[b]][p->buffers[b].tier] += bytes;
        change[last[b] + 1][p->buffers[b].tier] -= bytes;
    }
    for (int t = 0; t < TIERS; t++)
        out[t] = 0;
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int t = 0; t < TIERS; t++) {
            live[t] += change[i][t];
            out[t] = fmax(out[t], (double)live[t]);
        }
    free(first);
    free(last);
    free(change);
    return st;
}

static enum status measure(const struct model *m, const struct strategy *s, const struct cost_model *cost, int role,
                           struct need *out)
{
    struct program *p;
    struct io_buffers io;
    TRY(lower_program(m, s, role, &io, &p));
    memset(out, 0, sizeof *out);
    out->instrs = p->n_instrs;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        out->busy[in->phase == 'b' ? BACKWARD : FORWARD][in->lane] += cost_seconds(cost, in, program_call(p, in));
    }
    for (int b = 0; b < p->n_persistent; b++)
        out->persistent[p->buffers[b].tier] += (double)round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    enum status st = live_bytes(p, out->short_lived);
    program_destroy(p);
    return st;
}

/* Models of this many layers and one more stand for all: the last layer differs from the others, and what one more adds is the
 * difference. */
enum { FEW = 2 };

/* What each class elsewhere adds to the first option of every class. Of a model of FEW layers, and of one of one layer more. */
struct differences {
    struct need base, params[3], grads[3], acts[3][2]; /* acts: with most and fewest chunks kept */
    struct need update[3][3][3][2];                    /* of params, grads, optim, on host: the update alone */
};

static enum status find_differences(const struct model *m, const struct options *o, const struct strategy *fixed,
                                    const struct cost_model *cost, int role, struct differences *d)
{
    struct strategy base = *fixed;
    base.params = o->params[0];
    base.grads = o->grads[0];
    base.optim = o->optim[0];
    base.acts = o->acts[0];
    base.update_on_host = o->update[0];
    base.kept_chunks = o->kept[0];
    memset(d, 0, sizeof *d);
    TRY(measure(m, &base, cost, role, &d->base));
    for (int i = 1; i < o->n_params; i++) {
        struct strategy s = base;
        s.params = o->params[i];
        TRY(measure(m, &s, cost, role, &d->params[i]));
        need_add(&d->params[i], -1, &d->base);
    }
    for (int i = 1; i < o->n_grads; i++) {
        struct strategy s = base;
        s.grads = o->grads[i];
        TRY(measure(m, &s, cost, role, &d->grads[i]));
        need_add(&d->grads[i], -1, &d->base);
    }
    for (int i = 0; i < o->n_acts; i++)
        for (int fewest = 0; fewest < 2; fewest++) {
            struct strategy s = base;
            s.acts = o->acts[i];
            s.kept_chunks = o->kept[fewest ? o->n_kept - 1 : 0];
            if (i + fewest == 0)
                continue;
            TRY(measure(m, &s, cost, role, &d->acts[i][fewest]));
            need_add(&d->acts[i][fewest], -1, &d->base);
        }
    for (int i = 0; i < o->n_params * o->n_grads * o->n_optim * o->n_update; i++) {
        int u = i % o->n_update, x = i / o->n_update % o->n_optim, g = i / o->n_update / o->n_optim % o->n_grads,
            p = i / o->n_update / o->n_optim / o->n_grads;
        struct strategy s = base;
        s.params = o->params[p];
        s.grads = o->grads[g];
        s.optim = o->optim[x];
        s.update_on_host = o->update[u];
        TRY(measure(m, &s, cost, ROLE_UPDATE, &d->update[p][g][x][u]));
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

static void judge(struct candidate *c, const struct cost_model *cost, const struct need *step, const struct need *update,
                  double micro_batches, const int64_t limit[TIERS])
{
    double forward[LANES];
    c->traffic = -micro_batches * (step->busy[FORWARD][LANE_COMPUTE] + step->busy[BACKWARD][LANE_COMPUTE]);
    for (int l = 0; l < LANES; l++) {
        forward[l] = step->busy[FORWARD][l] + update->busy[FORWARD][l];
        c->traffic += micro_batches * (step->busy[FORWARD][l] + step->busy[BACKWARD][l]) + update->busy[FORWARD][l];
    }
    c->estimate = pass_seconds(cost, forward) + (micro_batches - 1) * pass_seconds(cost, step->busy[FORWARD]) +
                  micro_batches * pass_seconds(cost, step->busy[BACKWARD]);
    c->seconds = c->estimate;
    for (int t = 0; t < TIERS; t++)
        c->bytes[t] = (int64_t)(update->persistent[t] + fmax(step->short_lived[t], 0));
    c->excess = search_excess(c->bytes, limit);
}

static void combine(const struct options *o, const struct strategy *fixed, double layers, const struct differences *d,
                    const struct cost_model *cost, double micro_batches, const int64_t limit[TIERS], struct candidate *out,
                    int n_out)
{
    for (int i = 0; i < n_out; i++) {
        struct candidate *c = &out[i];
        int k = i % o->n_kept, rest = i / o->n_kept, n = o->device_layers[rest % o->n_device_layers];
        int u = (rest /= o->n_device_layers) % o->n_update;
        int a = (rest /= o->n_update) % o->n_acts, x = (rest /= o->n_acts) % o->n_optim, g = (rest /= o->n_optim) % o->n_grads,
            p = rest / o->n_grads;
        double span = o->kept[0] - o->kept[o->n_kept - 1], fewest = span > 0 ? (o->kept[0] - o->kept[k]) / span : 0;
        struct need step = d->base;
        need_add(&step, 1, &d->params[p]);
        need_add(&step, 1, &d->grads[g]);
        double elsewhere =
            o->acts[a] == RES_DEVICE ? 1 : 1 - n / layers; /* the first option is the device, if there are several */
        need_add(&step, elsewhere * (1 - fewest), &d->acts[a][0]);
        need_add(&step, elsewhere * fewest, &d->acts[a][1]);
        need_add(&step, (1 - elsewhere) * fewest, &d->acts[0][1]);
        c->strategy = *fixed;
        c->strategy.params = o->params[p];
        c->strategy.grads = o->grads[g];
        c->strategy.optim = o->optim[x];
        c->strategy.acts = o->acts[a];
        c->strategy.update_on_host = o->update[u];
        c->strategy.kept_chunks = o->kept[k];
        c->strategy.device_layers = n;
        c->place = i;
        c->redundant = (n > 0 && o->acts[a] == RES_DEVICE) || /* or state of the device would go to the host to be updated */
                       (o->n_update > 1 && o->update[u] && o->optim[x] == RES_DEVICE);
        judge(c, cost, &step, &d->update[p][g][x][u], micro_batches, limit);
    }
}

static enum status differences_of(const struct model *m, const struct settings *s, const struct options *o,
                                  const struct strategy *fixed, const struct cost_model *cost, int64_t layers,
                                  struct differences *out)
{
    struct model *few = NULL;
    int role = ROLE_FORWARD | ROLE_BACKWARD | ROLE_LAST | (s->grad_accum == 1 ? ROLE_FIRST : 0);
    TRY(search_shortened(m, s, layers, &few));
    enum status st = find_differences(few, o, fixed, cost, role, out);
    model_destroy(few);
    return st;
}

/* Estimates for all layers, and what one more layer would add to the bytes. */
static enum status estimate_all(const struct model *m, const struct settings *s, const struct options *o,
                                const struct strategy *fixed, const struct cost_model *cost, const int64_t limit[TIERS],
                                struct search *out)
{
    struct differences *d = sys_calloc(2, sizeof *d), *layer = d + 1;
    struct candidate *longer = sys_calloc((size_t)out->n, sizeof *longer);
    int64_t layers = m->config.layers, measured = min_i64(layers, FEW);
    double micro_batches = (double)s->grad_accum;
    enum status st = d && longer ? OK : no_memory();
    TRY_GOTO(st, done);
    TRY_GOTO(differences_of(m, s, o, fixed, cost, measured, d), done);
    TRY_GOTO(differences_of(m, s, o, fixed, cost, measured + 1, layer), done);
    differences_add(layer, -1, d);
    differences_add(d, (double)(layers - measured), layer);
    combine(o, fixed, (double)layers, d, cost, micro_batches, limit, out->candidates, out->n);
    out->instrs = d->base.instrs;
    out->layer_instrs = layer->base.instrs;
    differences_add(d, 1, layer);
    combine(o, fixed, (double)layers + 1, d, cost, micro_batches, limit, longer, out->n);
    for (int i = 0; i < out->n; i++)
        for (int t = 0; t < TIERS; t++)
            out->candidates[i].layer_bytes[t] = longer[i].bytes[t] - out->candidates[i].bytes[t];
done:
    free(d);
    free(longer);
    return st;
}

static void remove_redundant(struct search *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->candidates[i].redundant)
            s->candidates[n++] = s->candidates[i];
    s->n = n;
}

/* All that the settings leave open, estimated if there is a choice or if it is asked for. */
static enum status list_all(const struct model *m, const struct settings *s, const struct strategy *fixed,
                            const struct cost_model *cost, const int64_t limit[TIERS], int always, struct search *out)
{
    struct options o;
    options_of(s, fixed, (int)m->config.layers, &o);
    *out = (struct search){.n = o.n_params * o.n_grads * o.n_optim * o.n_acts * o.n_update * o.n_kept * o.n_device_layers};
    out->candidates = sys_calloc((size_t)out->n, sizeof *out->candidates);
    if (!out->candidates)
        return no_memory();
    if (out->n == 1 && !always) {
        static const struct differences none;
        combine(&o, fixed, 1, &none, cost, 1, limit, out->candidates, 1);
        return OK;
    }
    enum status st = estimate_all(m, s, &o, fixed, cost, limit, out);
    if (st != OK)
        search_destroy(out);
    else
        remove_redundant(out);
    return st;
}

enum status search_create(const struct model *m, const struct settings *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], struct search *out)
{
    TRY(list_all(m, s, fixed, cost, limit, 0, out));
    if (out->n == 1)
        return OK;
    qsort(out->candidates, (size_t)out->n, sizeof *out->candidates, search_order);
    enum status st = search_try(m, s, cost, limit, out);
    if (st != OK)
        search_destroy(out);
    return st;
}

enum status search_leanest(const struct model *m, const struct settings *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    struct search x;
    TRY(list_all(m, s, fixed, cost, limit, 1, &x));
    enum status st = search_try_leanest(m, s, cost, limit, &x);
    if (st == OK)
        *out = x.candidates[0];
    search_destroy(&x);
    return st;
}

enum status search_price(const struct model *m, const struct settings *s, const struct strategy *strategy,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out)
{
    int n = strategy->device_layers, two = n > 0; /* what stays on the device is reckoned from the activations there */
    struct options o = {.params = {strategy->params},
                        .grads = {strategy->grads},
                        .optim = {strategy->optim},
                        .acts = {two ? RES_DEVICE : strategy->acts, strategy->acts},
                        .n_params = 1,
                        .n_grads = 1,
                        .n_optim = 1,
                        .n_acts = 1 + two,
                        .update = {strategy->update_on_host},
                        .n_update = 1,
                        .device_layers = {n},
                        .n_device_layers = 1,
                        .kept = {strategy->kept_chunks},
                        .n_kept = 1};
    struct candidate c[2] = {{.estimate = 0}};
    struct search x = {.candidates = c, .n = 1 + two};
    struct strategy fixed = *strategy;
    fixed.device_layers = 0;
    TRY(estimate_all(m, s, &o, &fixed, cost, limit, &x));
    *out = c[two];
    x.candidates = out;
    x.n = 1;
    return search_try(m, s, cost, limit, &x);
}

void search_destroy(struct search *s)
{
    free(s->candidates);
    s->candidates = NULL;
    s->n = 0;
}
