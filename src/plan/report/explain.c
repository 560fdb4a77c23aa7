/* Decisions and their alternatives. */
#include "plan/report/explain.h"

#include "base/prose.h"
#include "base/units.h"
#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/report/figures.h"
#include "plan/report/text.h"
#include "plan/search/price.h"
#include "program/drives.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const tiers[] = {"device", "host", "nvme"};

struct explainer {
    const struct plan *p;
    const struct model *m;
    const struct plan_request *s;
    struct report report;
    struct explanation *out;
};

static struct decision *decide(struct explainer *x, const char *what, const char *chosen, int given)
{
    struct decision *d = &x->out->decision[x->out->n++];
    *d = (struct decision){.what = what, .given = given};
    snprintf(d->chosen, sizeof d->chosen, "%s", chosen);
    return d;
}

/* Those that fit first, of them the faster one; what does not fit takes no time. */
static int is_cheaper(const struct alternative *a, const struct alternative *b)
{
    return a->fits && (!b->fits || a->seconds < b->seconds);
}

static void add(struct decision *d, const struct candidate *c, double seconds, const char *say)
{
    struct alternative a = {.seconds = seconds, .fits = c->excess <= 1};
    memcpy(a.bytes, c->bytes, sizeof a.bytes);
    snprintf(a.say, sizeof a.say, "%s", say);
    int at = d->n++;
    for (; at > 0 && is_cheaper(&a, &d->by_cost[at - 1]); at--)
        d->by_cost[at] = d->by_cost[at - 1];
    d->by_cost[at] = a;
}

static enum status try(struct explainer *x, struct decision *d, const struct plan_request *s, const struct strategy *strategy,
                       const char *say)
{
    struct candidate c;
    struct problem p;
    problem_set(&p, x->m, s, x->p->limit);
    TRY(search_price(&p, strategy, &c));
    add(d, &c, c.seconds, say);
    return OK;
}

/* The problem that the plan solves. */
static struct problem problem_of_plan(const struct plan *p, const struct model *m, const struct plan_request *s)
{
    struct problem out = {.model = m, .request = *s, .cost = p->cost};
    memcpy(out.limit, p->limit, sizeof out.limit);
    return out;
}

/* What compute waits for a class's transfers. */
static void note_waits(const struct explainer *x, enum tensor_class class, struct decision *d)
{
    double waits = x->report.exposed[class] / x->p->seconds;
    if (x->report.moved[class] == 0)
        return;
    if (waits < 0.005)
        snprintf(d->note, sizeof d->note, "transfers hide");
    else
        snprintf(d->note, sizeof d->note, "compute waits %.0f%% of the step for transfers", 100 * waits);
}

/* Of a class in two tiers: what follows the farther one's name. */
static const char *say_nearer(const struct strategy *s, char buf[48])
{
    snprintf(buf, 48, ", of %d layer%s on the %s", s->nearer, s->nearer > 1 ? "s" : "", tiers[s->nearer_at]);
    return buf;
}

/* Where layers pass things on with activations in a tier: where the settings say, else where they do now, but no farther away. */
static enum residency passing_beside(const struct explainer *x, enum residency acts)
{
    static const enum residency given[] = {[OFFLOAD_NONE] = RES_DEVICE, [OFFLOAD_CPU] = RES_HOST, [OFFLOAD_NVME] = RES_NVME};
    enum residency passing = x->s->passing == OFFLOAD_AUTO ? x->p->strategy.passing : given[x->s->passing];
    return passing < acts ? passing : acts;
}

static enum status explain_class(struct explainer *x, const char *what, enum tensor_class class, enum offload given,
                                 size_t offset)
{
    struct strategy s = x->p->strategy;
    enum residency *at = (enum residency *)((char *)&s + offset), chosen = *at;
    char say[96], but[48];
    int two = s.nearer > 0 && s.nearer_class == class;
    snprintf(say, sizeof say, "%s%s", tiers[chosen], two ? say_nearer(&s, but) : "");
    struct decision *d = decide(x, what, say, given != OFFLOAD_AUTO);
    note_waits(x, class, d);
    if (two)
        s.nearer = 0;
    for (int r = RES_DEVICE; r <= RES_NVME; r++) {
        if (r == (int)chosen && !two)
            continue;
        *at = (enum residency)r;
        if (class == CLASS_ACT)
            s.passing = passing_beside(x, (enum residency)r);
        int split = class != CLASS_ACT || r != RES_DEVICE;
        s.device_layers = split ? x->p->strategy.device_layers : 0;
        s.device_chunks = split ? x->p->strategy.device_chunks : 0;
        TRY(try(x, d, x->s, &s, tiers[r]));
    }
    return OK;
}

/* Where some are there: a quarter more or less, or none. */
static enum status explain_chunks(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    int chunks = (int)ceil_div(s->rows, s->row_chunk), quarter = (int)max_i64(1, chunks / 4);
    int other[3] = {0, s->device_chunks - quarter, s->device_chunks + quarter};
    char say[64];
    if (s->device_chunks == 0)
        return OK;
    snprintf(say, sizeof say, "%d of %d", s->device_chunks, chunks);
    struct decision *d = decide(x, "row chunks of the other layers whose activations stay on the device", say, 0);
    for (int i = 0; i < 3; i++) {
        struct strategy t = *s;
        t.device_chunks = other[i];
        snprintf(say, sizeof say, "%d", other[i]);
        if ((i == 0 || other[i] > 0) && other[i] <= chunks)
            TRY(try(x, d, x->s, &t, say));
    }
    return OK;
}

/* What layers pass on lies no farther away than what they save. */
static enum status explain_passing(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    struct decision *d = decide(x, "what layers pass on", tiers[s->passing], x->s->passing != OFFLOAD_AUTO);
    for (int r = RES_DEVICE; r <= (int)s->acts; r++) {
        struct strategy other = *s;
        other.passing = (enum residency)r;
        if (r != (int)s->passing)
            TRY(try(x, d, x->s, &other, tiers[r]));
    }
    return OK;
}

static enum status explain_acts(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    TRY(explain_class(x, "activations", CLASS_ACT, x->s->acts, offsetof(struct strategy, acts)));
    if (s->acts == RES_DEVICE)
        return OK;
    struct decision *d = &x->out->decision[x->out->n - 1];
    int last = (int)x->m->config.layers - s->device_layers - 1;
    char but[48];
    snprintf(d->chosen, sizeof d->chosen, "layer inputs, attention outputs and log-sum-exps of layers 0-%d to the %s%s", last,
             tiers[s->acts], s->nearer > 0 && s->nearer_class == CLASS_ACT ? say_nearer(s, but) : "");
    TRY(explain_passing(x));
    static const int more[] = {0, 1, 2, 4};
    char say[64];
    snprintf(say, sizeof say, "%d", s->device_layers);
    d = decide(x, "last layers whose activations stay on the device", say, x->s->acts != OFFLOAD_AUTO);
    for (int i = 0; i < 4 && more[i] < x->m->config.layers; i++) {
        struct strategy other = *s;
        other.device_layers = more[i];
        snprintf(say, sizeof say, "%d", more[i]);
        if (more[i] != s->device_layers)
            TRY(try(x, d, x->s, &other, say));
    }
    return explain_chunks(x);
}

static const char *say_inputs(int every, char say[64])
{
    snprintf(say, 64, every > 1 ? "one in %d" : "all", every);
    return say;
}

static enum status explain_inputs(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    static const int turns[] = {1, 2, 4};
    char say[64];
    struct decision *d = decide(x, "layers whose inputs are kept", say_inputs(s->input_every, say), x->s->keep_inputs > 0);
    for (int i = 0; i < 3 && turns[i] < x->m->config.layers; i++) {
        struct strategy other = *s;
        other.input_every = turns[i];
        if (turns[i] != s->input_every)
            TRY(try(x, d, x->s, &other, say_inputs(turns[i], say)));
    }
    return OK;
}

/* A quarter of the chunks more or less, and all or none. */
static enum status explain_alpha(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    int chunks = (int)ceil_div(s->rows, s->row_chunk), tried[4], n = 0;
    int quarter = (int)max_i64(1, chunks / 4), other[4] = {s->kept_chunks + quarter, s->kept_chunks - quarter, chunks, 0};
    char say[64];
    snprintf(say, sizeof say, "%d of %d", s->kept_chunks, chunks);
    struct decision *d = decide(x, "row chunks kept that might be computed again", say, x->s->alpha >= 0);
    if (x->report.recomputed > 0)
        snprintf(d->note, sizeof d->note, "%.1f%% of the step is computed a second time",
                 100 * x->report.recomputed / x->p->seconds);
    for (int i = 0; i < 4; i++) {
        struct strategy t = *s;
        int seen = other[i] < 0 || other[i] > chunks || other[i] == s->kept_chunks;
        for (int k = 0; k < n; k++)
            seen |= tried[k] == other[i];
        if (seen)
            continue;
        tried[n++] = t.kept_chunks = other[i];
        snprintf(say, sizeof say, "%d", other[i]);
        TRY(try(x, d, x->s, &t, say));
    }
    return OK;
}

static enum status explain_update(struct explainer *x)
{
    struct strategy t = x->p->strategy;
    const char *where = strategy_updates_on_both(&t) ? "on both" : t.update_on_host ? "on the host" : "on the device";
    struct decision *d = decide(x, "AdamW", where, x->s->update != UPDATE_AUTO);
    t.update_on_host = !t.update_on_host;
    return try(x, d, x->s, &t, t.update_on_host ? "on the host" : "on the device");
}

static const char *say_depth(int blocks, char say[64])
{
    snprintf(say, 64, "%d of %d", blocks > 0 ? blocks : DRIVE_DEPTH, DRIVE_DEPTH);
    return say;
}

/* Where drives are written. A price looks at other depths of its own accord, so these are compared among themselves. */
static enum status explain_writes(struct explainer *x)
{
    static const int depths[] = {0, DRIVE_DEPTH / 2, DRIVE_DEPTH / 4};
    const struct plan *p = x->p;
    struct candidate own, c;
    char say[64];
    if (x->report.lane[LANE_WRITE].bytes == 0)
        return OK;
    struct decision *d = decide(x, "blocks of drive writes in flight beside reads", say_depth(p->strategy.write_depth, say), 0);
    const struct problem problem = problem_of_plan(p, x->m, x->s);
    TRY(search_price_as_is(&problem, &p->strategy, &own));
    for (int i = 0; i < 3; i++) {
        struct strategy other = p->strategy;
        other.write_depth = depths[i];
        if (depths[i] == p->strategy.write_depth)
            continue;
        TRY(search_price_as_is(&problem, &other, &c));
        add(d, &c, x->out->seconds * c.seconds / own.seconds, say_depth(depths[i], say));
    }
    return OK;
}

/* The chosen placement on what other settings fix; nothing if that is not legal. */
static enum status try_fixed(struct explainer *x, struct decision *d, const struct plan_request *s, const char *say)
{
    const struct strategy *p = &x->p->strategy;
    struct strategy t;
    if (plan_fixed(x->m, s, &t) != OK)
        return OK;
    strategy_place(&t, p);
    double alpha = (double)p->kept_chunks / (double)ceil_div(p->rows, p->row_chunk);
    t.kept_chunks = (int)(alpha * (double)ceil_div(t.rows, t.row_chunk) + 0.5);
    return try(x, d, s, &t, say);
}

static enum status explain_tiles(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    char say[64];
    snprintf(say, sizeof say, "%lld rows, %d heads, %lld rows of the loss", (long long)p->row_chunk, p->head_tile,
             (long long)p->loss_tile);
    struct decision *d = decide(x, "tiles", say, 0);
    snprintf(d->note, sizeof d->note,
             "they change rounding: those of model and length, unless others gain enough or nothing fits");
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.row_chunk = twice ? 2 * p->row_chunk : p->row_chunk / 2;
        s.loss_tile = min_i64(p->loss_tile, s.row_chunk);
        if (s.row_chunk > p->rows || s.row_chunk < 1)
            continue;
        snprintf(say, sizeof say, "%lld rows", (long long)s.row_chunk);
        TRY(try_fixed(x, d, &s, say));
    }
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.head_tile = twice ? 2 * p->head_tile : p->head_tile / 2;
        if (s.head_tile < 1)
            continue;
        snprintf(say, sizeof say, "%lld heads", (long long)s.head_tile);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

static enum status explain_ranks(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    struct plan_request s = *x->s;
    char say[64];
    snprintf(say, sizeof say, "%d", p->zero);
    struct decision *d = decide(x, "ZeRO stage", say, 0);
    for (int stage = 1; stage <= 3; stage++) {
        if (stage == p->zero)
            continue;
        s.zero = stage;
        snprintf(say, sizeof say, "%d", stage);
        TRY(try_fixed(x, d, &s, say));
    }
    if (p->ulysses * p->ring == 1)
        return OK;
    snprintf(say, sizeof say, "ulysses=%d,ring=%d", p->ulysses, p->ring);
    d = decide(x, "ranks that share a sequence", say, 0);
    for (int up = 0; up < 2; up++) {
        s = *x->s;
        s.dp = p->dp;
        s.ulysses = up ? 2 * p->ulysses : p->ulysses / 2;
        s.ring = up ? p->ring / 2 : 2 * p->ring;
        s.row_chunk = s.loss_tile = s.head_tile = AUTO; /* this mesh's tiles may not divide that one's heads */
        if (s.ulysses * s.ring != p->ulysses * p->ring ||
            plan_mesh(x->m, &s, p->ranks, s.hardware ? s.hardware->devices : p->ranks) != OK)
            continue;
        snprintf(say, sizeof say, "ulysses=%d,ring=%d", s.ulysses, s.ring);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

/* In the order of the table: classes, then what is theirs, then what all share. */
enum status explain_make(const struct plan *p, const struct model *m, const struct plan_request *s, struct explanation *out)
{
    struct plan_request chosen = *s; /* alternatives are on the plan's grid */
    struct explainer x = {.p = p, .m = m, .s = &chosen, .out = out};
    struct candidate own;
    chosen.row_chunk = p->strategy.row_chunk;
    chosen.head_tile = p->strategy.head_tile;
    chosen.loss_tile = p->strategy.loss_tile;
    chosen.group = p->strategy.group;
    memset(out, 0, sizeof *out);
    TRY(report_make(p, m, &x.report));
    const struct problem problem = problem_of_plan(p, m, s);
    TRY(search_price(&problem, &p->strategy, &own));
    out->seconds = own.seconds;
    TRY(explain_class(&x, "parameters", CLASS_PARAM, s->params, offsetof(struct strategy, params)));
    TRY(explain_class(&x, "gradients", CLASS_GRAD, s->grads, offsetof(struct strategy, grads)));
    TRY(explain_class(&x, "optimizer state", CLASS_OPTIM, s->optim, offsetof(struct strategy, optim)));
    TRY(explain_update(&x));
    TRY(explain_acts(&x));
    TRY(explain_inputs(&x));
    TRY(explain_alpha(&x));
    TRY(explain_writes(&x));
    TRY(explain_tiles(&x));
    return p->strategy.ranks > 1 ? explain_ranks(&x) : OK;
}

static void describe_alternative(const struct plan *p, const struct explanation *e, const struct alternative *a, char *buf,
                                 size_t size)
{
    char need[32], has[32];
    for (int t = 0; t < TIERS && !a->fits; t++)
        if (a->bytes[t] > p->limit[t]) {
            units_format_apart(a->bytes[t], p->limit[t], need, has);
            snprintf(buf, size, "%s: needs %s of %s on the %s", a->say, need, has, tiers[t]);
            return;
        }
    snprintf(buf, size, "%s: %s", a->say, report_compared(e->seconds / a->seconds, 0.0005, need));
}

void explain_print(const struct plan *p, const struct explanation *e, FILE *f)
{
    fprintf(f, "\nWhat was decided, and what it would be otherwise with all else as it is:\n");
    for (int i = 0; i < e->n; i++) {
        const struct decision *d = &e->decision[i];
        char others[1024] = "";
        for (int k = 0; k < d->n; k++) {
            size_t n = strlen(others);
            n += (size_t)snprintf(others + n, sizeof others - n, "%s", k ? "; " : " Otherwise ");
            describe_alternative(p, e, &d->by_cost[k], others + n, sizeof others - n);
        }
        prose_print(f, 4, "  %c%s: %s%s%s%s.%s%s", toupper(d->what[0]), d->what + 1, d->chosen, d->given ? " (given)" : "",
                    d->note[0] ? "; " : "", d->note, others, d->n ? "." : "");
    }
}
