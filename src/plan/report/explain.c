/* Decisions within one grid (tiers, kept values, the place of the update), then those on tiles, ZeRO stage and mesh. */
#include "plan/report/explain.h"

#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/report/explain_experts.h"
#include "plan/report/explain_stages.h"
#include "plan/report/explainer.h"
#include "plan/schedule/prefetch.h"
#include "program/drives.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Notes how long compute waits for a class's transfers. */
static void note_waits(const struct explainer *x, enum tensor_class class, struct decision *d)
{
    double waits = x->report.exposed[class] / x->p->seconds;
    if (x->report.moved[class] == 0)
        return;
    if (waits < 0.005)
        snprintf(d->note, sizeof d->note, "transfers are hidden behind compute");
    else
        snprintf(d->note, sizeof d->note, "compute waits %.0f%% of the step for transfers", 100 * waits);
}

/* Writes the text that follows the name of the farther tier, for a class in two tiers. */
static const char *say_promoted(const struct strategy *s, char buf[48])
{
    snprintf(buf, 48, ", of %d layer%s on the %s", s->placement.promoted_layers, s->placement.promoted_layers > 1 ? "s" : "",
             tier_name((enum tier)s->placement.promote_tier));
    return buf;
}

/* Returns the tier in which layers would pass gradients and states on, if activations lie in tier `acts`: the settings' tier or,
 * if open, the plan's, but none farther away than `acts`. */
static enum residency passing_beside(const struct explainer *x, enum residency acts)
{
    static const enum residency given[] = {[OFFLOAD_NONE] = RES_DEVICE, [OFFLOAD_CPU] = RES_HOST, [OFFLOAD_NVME] = RES_NVME};
    enum residency passing = x->s->passing == OFFLOAD_AUTO ? x->p->strategy.placement.passing : given[x->s->passing];
    return passing < acts ? passing : acts;
}

static enum status explain_class(struct explainer *x, const char *what, const char *flag, enum tensor_class class,
                                 enum offload given, size_t offset)
{
    struct strategy s = x->p->strategy;
    enum residency *at = (enum residency *)((char *)&s + offset), chosen = *at;
    char say[96], but[48];
    int two = s.placement.promoted_layers > 0 && s.placement.promoted_class == class;
    snprintf(say, sizeof say, "%s%s", tier_name((enum tier)chosen), two ? say_promoted(&s, but) : "");
    struct decision *d = explainer_decide(x, what, flag, say, given != OFFLOAD_AUTO);
    note_waits(x, class, d);
    if (two)
        s.placement.promoted_layers = 0;
    for (int r = RES_DEVICE; r <= RES_NVME; r++) {
        if (r == (int)chosen && !two)
            continue;
        *at = (enum residency)r;
        if (class == CLASS_ACT)
            s.placement.passing = passing_beside(x, (enum residency)r);
        int split = class != CLASS_ACT || r != RES_DEVICE;
        s.placement.device_layers = split ? x->p->strategy.placement.device_layers : 0;
        s.placement.device_chunks = split ? x->p->strategy.placement.device_chunks : 0;
        TRY(explainer_try(x, d, x->s, &s, tier_name((enum tier)r)));
    }
    return OK;
}

/* Tries other numbers of row chunks on the device, if some chunks stay there: none, and a quarter of all chunks more or less. */
static enum status explain_chunks(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    int chunks = (int)ceil_div(s->rows, s->key.row_chunk), quarter = (int)max_i64(1, chunks / 4);
    int other[3] = {0, s->placement.device_chunks - quarter, s->placement.device_chunks + quarter};
    char say[64];
    if (s->placement.device_chunks == 0)
        return OK;
    snprintf(say, sizeof say, "%d of %d", s->placement.device_chunks, chunks);
    struct decision *d = explainer_decide(x, "row chunks of the other layers whose activations stay on the device", "", say, 0);
    for (int i = 0; i < 3; i++) {
        struct strategy t = *s;
        t.placement.device_chunks = other[i];
        snprintf(say, sizeof say, "%d", other[i]);
        if ((i == 0 || other[i] > 0) && other[i] <= chunks)
            TRY(explainer_try(x, d, x->s, &t, say));
    }
    return OK;
}

/* Tries other tiers for the values that layers pass on. They lie no farther away than saved activations. */
static enum status explain_passing(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    struct decision *d = explainer_decide(x, "hidden states between layers", "--offload passing",
                                          tier_name((enum tier)s->placement.passing), x->s->passing != OFFLOAD_AUTO);
    for (int r = RES_DEVICE; r <= (int)s->placement.acts; r++) {
        struct strategy other = *s;
        other.placement.passing = (enum residency)r;
        if (r != (int)s->placement.passing)
            TRY(explainer_try(x, d, x->s, &other, tier_name((enum tier)r)));
    }
    return OK;
}

static enum status explain_acts(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    TRY(explain_class(x, "activations", "--offload acts", CLASS_ACT, x->s->acts, offsetof(struct strategy, placement.acts)));
    if (s->placement.acts == RES_DEVICE)
        return OK;
    struct decision *d = &x->out->decision[x->out->n - 1];
    int last = (int)x->m->config.layers - s->placement.device_layers - 1;
    char but[48];
    snprintf(d->chosen, sizeof d->chosen, "layer inputs, attention outputs and log-sum-exps of layers 0-%d to the %s%s", last,
             tier_name((enum tier)s->placement.acts),
             s->placement.promoted_layers > 0 && s->placement.promoted_class == CLASS_ACT ? say_promoted(s, but) : "");
    TRY(explain_passing(x));
    static const int more[] = {0, 1, 2, 4};
    char say[64];
    snprintf(say, sizeof say, "%d", s->placement.device_layers);
    d = explainer_decide(x, "last layers whose activations stay on the device", "", say, x->s->acts != OFFLOAD_AUTO);
    for (int i = 0; i < 4 && more[i] < x->m->config.layers; i++) {
        struct strategy other = *s;
        other.placement.device_layers = more[i];
        snprintf(say, sizeof say, "%d", more[i]);
        if (more[i] != s->placement.device_layers)
            TRY(explainer_try(x, d, x->s, &other, say));
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
    struct decision *d = explainer_decide(x, "layers whose inputs are kept", "--keep-inputs",
                                          say_inputs(s->placement.keep_inputs, say), x->s->keep_inputs > 0);
    for (int i = 0; i < 3 && turns[i] < x->m->config.layers; i++) {
        struct strategy other = *s;
        other.placement.keep_inputs = turns[i];
        if (turns[i] != s->placement.keep_inputs)
            TRY(explainer_try(x, d, x->s, &other, say_inputs(turns[i], say)));
    }
    return OK;
}

static int kinds_differ(const struct strategy *s)
{
    return s->placement.full_more != 0 || s->placement.light_fewer != 0;
}

/* Finds by which factor the plan's first program slows down if all kinds of layers keep the mean number of chunks; 1 if they do
 * already, or if the mean does not fit. Trials know the mean only, so this program has all layers. */
static enum status mean_takes(const struct explainer *x, double *times)
{
    const struct plan *p = x->p;
    struct strategy mean = p->strategy;
    struct io_buffers io;
    struct program *program;
    enum tier which;
    int level = 0;
    *times = 1;
    if (!kinds_differ(&mean))
        return OK;
    mean.placement.full_more = mean.placement.light_fewer = 0;
    TRY(fit_program(x->m, &mean, &p->cost, plan_first_duties(x->s), p->limit, 0, FIT_SERIAL, &level, &io, &program));
    if (isfinite(program->seconds) && fit_within(program->arena, p->limit, &which))
        *times = program->seconds / p->programs[PLAN_UPDATE_STEP]->seconds;
    program_destroy(program);
    return OK;
}

/* Tries other numbers of kept chunks: a quarter of all more or less than the mean, all and none; if kinds of layers differ, also
 * the mean for all kinds. */
static enum status explain_alpha(struct explainer *x)
{
    const struct strategy *s = &x->p->strategy;
    int chunks = (int)ceil_div(s->rows, s->key.row_chunk), tried[5], n = 0;
    int quarter = (int)max_i64(1, chunks / 4);
    const int other[5] = {s->placement.kept_chunks + quarter, s->placement.kept_chunks - quarter, chunks, 0,
                          s->placement.kept_chunks};
    struct problem problem;
    struct candidate c;
    double times;
    char say[64];
    problem_set(&problem, x->m, x->s, x->p->limit);
    TRY(mean_takes(x, &times));
    if (!kinds_differ(s))
        snprintf(say, sizeof say, "%d of %d", s->placement.kept_chunks, chunks);
    else
        snprintf(say, sizeof say, "%d of %d in layers %s, %d in others", strategy_kept(s, 1), chunks, model_light_name(x->m),
                 strategy_kept(s, 0));
    struct decision *d = explainer_decide(x, "row chunks kept that might be computed again", "--alpha", say, x->s->alpha >= 0);
    if (x->report.recomputed > 0)
        snprintf(d->note, sizeof d->note, "%.1f%% of the step is computed a second time",
                 100 * x->report.recomputed / x->p->seconds);
    for (int i = 0; i < 4 + kinds_differ(s); i++) {
        struct strategy t = *s;
        int seen = other[i] < 0 || other[i] > chunks || (other[i] == s->placement.kept_chunks && i < 4);
        for (int k = 0; k < n; k++)
            seen |= tried[k] == other[i];
        if (seen)
            continue;
        tried[n++] = t.placement.kept_chunks = other[i];
        t.placement.full_more = t.placement.light_fewer = 0;
        snprintf(say, sizeof say, kinds_differ(s) ? "%d in all layers" : "%d", other[i]);
        TRY(search_price(&problem, &t, &c));
        explainer_add(d, &c, times * c.seconds, say);
    }
    return OK;
}

static enum status explain_update(struct explainer *x)
{
    struct strategy t = x->p->strategy;
    const char *where = strategy_updates_on_both(&t) ? "on both" : t.placement.update_on_host ? "on the host" : "on the device";
    struct decision *d = explainer_decide(x, "AdamW", "--update", where, x->s->update != UPDATE_AUTO);
    t.placement.update_on_host = !t.placement.update_on_host;
    return explainer_try(x, d, x->s, &t, t.placement.update_on_host ? "on the host" : "on the device");
}

static const char *say_depth(int blocks, char say[64])
{
    snprintf(say, 64, "%d of %d", blocks > 0 ? blocks : DRIVE_DEPTH, DRIVE_DEPTH);
    return say;
}

/* Tries other depths of drive writes, if drives are written. search_price would change the depth by itself, so these placements
 * are priced unchanged and compared with the plan's own depth. */
static enum status explain_writes(struct explainer *x)
{
    static const int depths[] = {0, DRIVE_DEPTH / 2, DRIVE_DEPTH / 4};
    const struct plan *p = x->p;
    struct candidate own, c;
    char say[64];
    if (x->report.lane[LANE_WRITE].bytes == 0)
        return OK;
    struct decision *d = explainer_decide(x, "blocks of drive writes in flight beside reads", "",
                                          say_depth(p->strategy.placement.write_depth, say), 0);
    const struct problem problem = explainer_problem(p, x->m, x->s);
    TRY(search_price_as_is(&problem, &p->strategy, &own));
    for (int i = 0; i < 3; i++) {
        struct strategy other = p->strategy;
        other.placement.write_depth = depths[i];
        if (depths[i] == p->strategy.placement.write_depth)
            continue;
        TRY(search_price_as_is(&problem, &other, &c));
        explainer_add(d, &c, x->out->seconds * c.seconds / own.seconds, say_depth(depths[i], say));
    }
    return OK;
}

static enum status explain_placement(struct explainer *x)
{
    const struct plan_request *s = x->s;
    TRY(explain_class(x, "parameters", "--offload params", CLASS_PARAM, s->params, offsetof(struct strategy, placement.params)));
    TRY(explain_class(x, "gradients", "--offload grads", CLASS_GRAD, s->grads, offsetof(struct strategy, placement.grads)));
    TRY(explain_class(x, "optimizer state", "--offload optim", CLASS_OPTIM, s->optim,
                      offsetof(struct strategy, placement.optim)));
    TRY(explain_update(x));
    TRY(explain_acts(x));
    TRY(explain_experts(x));
    TRY(explain_inputs(x));
    TRY(explain_alpha(x));
    return explain_writes(x);
}

/* Tries the chosen placement on the grid and mesh that other settings fix; adds nothing if they are not legal. */
static enum status try_fixed(struct explainer *x, struct decision *d, const struct plan_request *s, const char *say)
{
    const struct strategy *p = &x->p->strategy;
    struct strategy t;
    if (plan_fixed(x->m, s, &t) != OK)
        return OK;
    strategy_place(&t, p);
    double alpha = (double)p->placement.kept_chunks / (double)ceil_div(p->rows, p->key.row_chunk);
    t.placement.kept_chunks = (int)(alpha * (double)ceil_div(t.rows, t.key.row_chunk) + 0.5);
    return explainer_try(x, d, s, &t, say);
}

static enum status explain_tiles(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    char say[64];
    snprintf(say, sizeof say, "%lld rows, %d heads, %lld rows of the loss", (long long)p->key.row_chunk, p->key.head_tile,
             (long long)p->key.loss_tile);
    struct decision *d = explainer_decide(x, "tiles", "--tiles", say, 0);
    snprintf(d->note, sizeof d->note, "they change rounding, so the default is left only to fit, or for enough speed");
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.row_chunk = twice ? 2 * p->key.row_chunk : p->key.row_chunk / 2;
        s.loss_tile = min_i64(p->key.loss_tile, s.row_chunk);
        if (s.row_chunk > p->rows || s.row_chunk < 1 || (p->piece > 0 && p->piece % s.row_chunk != 0))
            continue;
        snprintf(say, sizeof say, "%lld rows", (long long)s.row_chunk);
        TRY(try_fixed(x, d, &s, say));
    }
    for (int twice = 0; twice < 2; twice++) {
        struct plan_request s = *x->s;
        s.head_tile = twice ? 2 * p->key.head_tile : p->key.head_tile / 2;
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
    snprintf(say, sizeof say, "%d", p->key.zero);
    struct decision *d = explainer_decide(x, "ZeRO stage", "--zero", say, 0);
    for (int stage = 1; stage <= 3; stage++) {
        if (stage == p->key.zero)
            continue;
        s.zero = stage;
        snprintf(say, sizeof say, "%d", stage);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

/* Tries meshes in which twice or half as many ranks share heads; the ring changes in turn, so that as many ranks share a
 * sequence. */
static enum status explain_degrees(struct explainer *x)
{
    const struct strategy *p = &x->p->strategy;
    struct plan_request s = *x->s;
    char say[64];
    if (p->key.mesh.degree[MESH_ULYSSES] * p->key.mesh.degree[MESH_RING] == 1)
        return OK;
    snprintf(say, sizeof say, "ulysses=%d,ring=%d", p->key.mesh.degree[MESH_ULYSSES], p->key.mesh.degree[MESH_RING]);
    struct decision *d = explainer_decide(x, "ranks that share a sequence", "--mesh", say, 0);
    for (int up = 0; up < 2; up++) {
        s = *x->s;
        s.mesh.degree[MESH_DP] = p->key.mesh.degree[MESH_DP];
        s.mesh.degree[MESH_ULYSSES] = up ? 2 * p->key.mesh.degree[MESH_ULYSSES] : p->key.mesh.degree[MESH_ULYSSES] / 2;
        s.mesh.degree[MESH_RING] = up ? p->key.mesh.degree[MESH_RING] / 2 : 2 * p->key.mesh.degree[MESH_RING];
        s.row_chunk = s.loss_tile = s.head_tile = AUTO; /* the plan's tiles may not divide the heads of the other mesh */
        if (s.mesh.degree[MESH_ULYSSES] * s.mesh.degree[MESH_RING] !=
                p->key.mesh.degree[MESH_ULYSSES] * p->key.mesh.degree[MESH_RING] ||
            plan_mesh(x->m, &s, p->ranks, s.hardware ? s.hardware->devices : p->ranks) != OK)
            continue;
        snprintf(say, sizeof say, "ulysses=%d,ring=%d", s.mesh.degree[MESH_ULYSSES], s.mesh.degree[MESH_RING]);
        TRY(try_fixed(x, d, &s, say));
    }
    return OK;
}

/* Returns the entry of the chosen mesh among those weighed; NULL: there is none. */
static const struct mesh_weighed *chosen_mesh(const struct plan *p)
{
    for (int i = 0; i < p->meshes.n; i++)
        if (mesh_equal(&p->meshes.of[i].mesh, &p->strategy.key.mesh) && p->meshes.of[i].packed == p->strategy.key.packed)
            return &p->meshes.of[i];
    return NULL;
}

enum { MESH_NAME = MESH_TEXT + 32 };

/* Writes the name of a mesh and, if several sequences are computed together, their number. */
static const char *name_mesh(const struct mesh *mesh, int64_t packed, char out[MESH_NAME])
{
    char text[MESH_TEXT];
    if (packed > 1)
        snprintf(out, MESH_NAME, "%s --micro-batch %lld", mesh_format(mesh, text), (long long)packed);
    else
        snprintf(out, MESH_NAME, "%s", mesh_format(mesh, text));
    return out;
}

/* Adds a mesh that was tried. Its seconds are on the grid that its search starts from, relative to those of the chosen mesh. */
static void add_mesh(struct explainer *x, struct decision *d, const struct mesh_weighed *w, const struct mesh_weighed *chosen)
{
    struct alternative a = {.fits = w->fits, .seconds = x->out->seconds * w->seconds / chosen->seconds};
    char mesh[MESH_NAME];
    snprintf(a.say, sizeof a.say, "%s", name_mesh(&w->mesh, w->packed, mesh));
    explainer_keep(d, &a);
}

/* Lists the most promising meshes: those tried, and those not tried since estimates promised less. */
static void explain_open_mesh(struct explainer *x)
{
    const struct meshes *all = &x->p->meshes;
    const struct mesh_weighed *chosen = chosen_mesh(x->p);
    char mesh[MESH_NAME];
    int untried = 0;
    const struct numerics_key *key = &x->p->strategy.key;
    struct decision *d = explainer_decide(x, "mesh", "--mesh", name_mesh(&key->mesh, key->packed, mesh), 0);
    size_t n = (size_t)snprintf(d->note, sizeof d->note, "of the %d that suit a step of %lld sequence%s", all->legal,
                                (long long)x->p->sequences, x->p->sequences == 1 ? "" : "s");
    for (int i = 0; i < all->n; i++) {
        const struct mesh_weighed *w = &all->of[i];
        if (w == chosen)
            continue;
        if (chosen && chosen->seconds > 0 && w->seconds > 0)
            add_mesh(x, d, w, chosen);
        else if (n < sizeof d->note)
            n += (size_t)snprintf(d->note + n, sizeof d->note - n, "%s%s", untried++ ? "; " : ", by estimate also ",
                                  name_mesh(&w->mesh, w->packed, mesh));
    }
    if (untried && n < sizeof d->note)
        snprintf(d->note + n, sizeof d->note - n, " were weighed, which promise less");
}

static enum status explain_grid(struct explainer *x)
{
    TRY(explain_tiles(x));
    if (x->p->strategy.ranks == 1)
        return OK;
    TRY(explain_ranks(x));
    explain_shared_experts(x);
    if (x->p->meshes.n < 2)
        return explain_degrees(x);
    explain_open_mesh(x);
    return OK;
}

enum status explain_make(const struct plan *p, const struct model *m, const struct plan_request *s, struct explanation *out)
{
    struct plan_request chosen = *s; /* alternatives are on the plan's grid */
    struct explainer x = {.p = p, .m = m, .s = &chosen, .out = out};
    struct candidate own;
    plan_fix_grid(&chosen, &p->strategy);
    chosen.group = p->strategy.key.group;
    chosen.alpha_by_kind = 0; /* trials give both kinds the mean number of chunks */
    memset(out, 0, sizeof *out);
    if (strategy_stages(&p->strategy) > 1)
        return explain_stages(&x);
    out->n_kinds = m->n_kinds;
    layer_kinds_make(p, m, out->kind);
    TRY(report_make(p, m, &x.report));
    const struct problem problem = explainer_problem(p, m, &chosen);
    TRY(search_price(&problem, &p->strategy, &own));
    out->seconds = own.seconds;
    TRY(explain_placement(&x));
    return explain_grid(&x);
}
