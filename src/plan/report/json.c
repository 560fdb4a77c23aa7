/* The plan as JSON. Names are stable: programs read them. docs/plan-json.md explains them. */
#include "plan/report/json.h"

#include "machine/hardware.h"
#include "machine/islands.h"
#include "plan/lower/mesh_parts.h"

#include "plan/report/advise.h"
#include "plan/report/describe.h"
#include "plan/report/explain.h"
#include "plan/report/figures.h"
#include "plan/search/decisions.h"
#include "program/digest.h"
#include "program/drives.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static void put(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, isfinite(x) ? json_real(x) : json_null());
}

static void put_int(json_t *o, const char *key, int64_t x)
{
    json_object_set_new(o, key, json_integer(x));
}

static void put_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

/* Returns an object with a number for each tier; no limit (INT64_MAX) is null. */
static json_t *by_tier(const int64_t bytes[TIERS])
{
    json_t *o = json_object();
    for (int t = 0; t < TIERS; t++)
        json_object_set_new(o, tier_name((enum tier)t), bytes[t] == INT64_MAX ? json_null() : json_integer(bytes[t]));
    return o;
}

/* Describes the islands of a machine, with the number of stages of each. */
static json_t *islands_json(const struct islands *x, int stages)
{
    json_t *o = json_object(), *list = json_array();
    for (int i = 0; i < x->n; i++) {
        json_t *one = json_object();
        put_text(one, "name", x->of[i].name);
        put_int(one, "nodes", x->nodes[i]);
        put_int(one, "devices_per_node", x->of[i].devices);
        put_int(one, "device_bytes", x->of[i].device_mem);
        put_int(one, "host_bytes_per_node", x->of[i].host_mem);
        put_int(one, "stages", islands_devices(x, i) * stages / islands_all_devices(x));
        json_array_append_new(list, one);
    }
    json_object_set_new(o, "islands", list);
    put(o, "bytes_per_second_of_a_node", x->bytes);
    put(o, "seconds", x->seconds);
    return o;
}

/* Describes the machine for which costs are computed: the one that the settings name, else this machine. The memory of this
 * machine is shown with the limits. */
static json_t *machine_json(const struct plan_request *s)
{
    struct hardware assumed;
    const struct hardware *h = s->hardware;
    if (!h) {
        hardware_assumed(&assumed);
        h = &assumed;
    }
    json_t *o = json_object(), *rates = json_object();
    put_text(o, "name", h->name);
    json_object_set_new(o, "here", json_boolean(!s->machine));
    put_int(o, "nodes", h->nodes);
    put_int(o, "devices_per_node", h->devices);
    put(o, "peak_flops_per_device", h->peak_flops[s->dtype]);
    put(rates, "h2d", h->h2d);
    put(rates, "d2h", h->d2h);
    put(rates, "inside", h->inside);
    put(rates, "across", h->across);
    put(rates, "host_memory", h->host_memory);
    put(rates, "read", h->read);
    put(rates, "write", h->write);
    put(rates, "both", h->both);
    json_object_set_new(o, "bytes_per_second", rates);
    if (!s->machine)
        return o;
    put_int(o, "device_bytes", h->device_mem);
    put_int(o, "host_bytes_per_node", h->host_mem);
    put_int(o, "nvme_bytes_per_node", h->nvme_mem);
    put_int(o, "drives_per_node", h->nvme_mem > 0 ? h->drives : 0);
    json_object_set_new(o, "host_assumed", json_boolean(h->host_assumed));
    json_object_set_new(o, "drives_assumed", json_boolean(h->drives_assumed));
    return o;
}

static json_t *model_json(const struct model *m)
{
    json_t *o = json_object();
    put_text(o, "name", m->config.name);
    put_int(o, "parameters", m->total_params);
    if (m->active_params < m->total_params)
        put_int(o, "active_parameters", m->active_params);
    put_int(o, "matrix_parameters", m->matrix_params);
    put_int(o, "layers", m->config.layers);
    return o;
}

static json_t *strategy_json(const struct strategy *s)
{
    static const char *const residency[] = {"none", "cpu", "nvme", "recompute"};
    json_t *o = json_object();
    put_int(o, "ranks", s->ranks);
    for (int d = 0; d < MESH_DIMS; d++)
        if (mesh_tells(&s->key.mesh, (enum mesh_dim)d))
            put_int(o, mesh_rows[d].key, s->key.mesh.degree[d]);
    for (int i = 0; i < s->key.stages.n; i++) {
        if (i == 0)
            json_object_set_new(o, "stage_layers", json_array());
        json_array_append_new(json_object_get(o, "stage_layers"), json_integer(s->key.stages.layers[i]));
    }
    put_int(o, "zero", s->key.zero);
    put_text(o, "dtype", dtype_name(s->key.dtype));
    for (int d = 0; d < DECISIONS; d++)
        if (decision_kind(d) == DECISION_IS_TIER)
            put_text(o, decision_json(d), residency[decision_get(s, d)]);
    if (s->placement.experts_at > 0)
        put_text(o, "experts", residency[s->placement.experts_at - 1]);
    if (s->placement.promoted_layers > 0) {
        put_text(o, "nearer", class_name(s->placement.promoted_class));
        put_int(o, "nearer_layers", s->placement.promoted_layers);
        put_text(o, "nearer_tier", tier_name((enum tier)s->placement.promote_tier));
    }
    for (int d = 0; d < DECISIONS; d++)
        if (decision_kind(d) == DECISION_IS_AMOUNT && decision_json(d))
            put_int(o, decision_json(d), decision_get(s, d));
    put_int(o, "chunks", ceil_div(s->rows, s->key.row_chunk));
    if (s->placement.full_more != 0 || s->placement.light_fewer != 0) {
        put_int(o, "kept_chunks_window", strategy_kept(s, 1));
        put_int(o, "kept_chunks_full", strategy_kept(s, 0));
    }
    put_text(o, "update", strategy_updates_on_both(s) ? "both" : s->placement.update_on_host ? "host" : "device");
    put_int(o, "write_depth",
            s->placement.write_depth > 0 ? s->placement.write_depth
                                         : DRIVE_DEPTH); /* most blocks of drive writes in flight beside reads */
    put_int(o, "rows", s->key.row_chunk);
    put_int(o, "heads", s->key.head_tile);
    put_int(o, "loss", s->key.loss_tile);
    put_int(o, "group", s->key.group);
    return o;
}

static json_t *step_json(const struct plan *p, const struct report *r)
{
    json_t *o = json_object();
    put_int(o, "sequences", p->sequences);
    if (p->strategy.key.packed > 1)
        put_int(o, "micro_batch", p->strategy.key.packed);
    put_int(o, "tokens", p->tokens);
    put(o, "seconds", p->seconds);
    put(o, "tokens_per_second", r->tokens_per_second);
    put(o, "tokens_per_second_per_rank", r->tokens_per_second / p->strategy.ranks);
    put(o, "model_flops", r->model_flops);
    put(o, "mfu", r->mfu);
    put(o, "hardware_flops", r->hardware_flops * p->strategy.ranks);
    put(o, "compute_seconds", r->lane[LANE_COMPUTE].busy);
    put(o, "gemm_seconds", r->compute[OPS_MATRIX]);
    put(o, "attention_seconds", r->compute[OPS_ATTENTION]);
    if (r->compute[OPS_RECURRENT] > 0)
        put(o, "linear_attention_seconds", r->compute[OPS_RECURRENT]);
    put(o, "elementwise_seconds", r->compute[OPS_ELEMENTWISE]);
    put_int(o, "saved_activation_bytes", r->saved);
    put(o, "recomputed_seconds", r->recomputed);
    put(o, "exposed_seconds", fmax(0, p->seconds - r->lane[LANE_COMPUTE].busy));
    put(o, "hidden", r->hidden);
    put(o, "nvme_written_bytes_all_ranks", (double)r->lane[LANE_WRITE].bytes * p->strategy.ranks);
    put(o, "nvme_written_bytes_per_day_all_ranks", r->written_per_day);
    return o;
}

static json_t *classes_json(const struct plan *p, const struct report *r)
{
    json_t *all = json_object();
    for (int c = 0; c < CLASSES; c++) {
        json_t *o = json_object();
        int64_t peak[TIERS];
        for (int t = 0; t < TIERS; t++)
            peak[t] = p->peak[t][c];
        json_object_set_new(o, "peak", by_tier(peak));
        put_int(o, "moved", r->moved[c]);
        put(o, "exposed_seconds", r->exposed[c]);
        json_object_set_new(all, class_name((enum tensor_class)c), o);
    }
    return all;
}

static json_t *experts_json(const struct report *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "held", by_tier(r->experts.held));
    put_int(o, "moved", r->experts.moved);
    put(o, "exposed_seconds", r->experts.exposed);
    return o;
}

static json_t *lanes_json(const struct plan *p, const struct report *r)
{
    json_t *all = json_object();
    for (int l = 0; l < LANES; l++) {
        json_t *o = json_object(), *waited = json_object();
        if (r->lane[l].instrs == 0) {
            json_decref(o);
            json_decref(waited);
            continue;
        }
        put_int(o, "instructions", r->lane[l].instrs);
        put_int(o, "bytes", r->lane[l].bytes);
        if (l != LANE_COMPUTE && l != LANE_HOST)
            put(o, "bytes_per_second", p->cost.lane_bytes[l]);
        put(o, "busy_seconds", r->lane[l].busy);
        put(o, "exposed_seconds", r->lane[l].exposed);
        for (int c = 0; c < CLASSES; c++)
            if (r->waited[l][c] > 0)
                put(waited, class_name((enum tensor_class)c), r->waited[l][c]);
        json_object_set_new(o, "exposed_seconds_by_class", waited);
        json_object_set_new(all, lane_name((enum lane)l), o);
    }
    return all;
}

static json_t *programs_json(const struct plan *p)
{
    json_t *all = json_array();
    int64_t count[PLAN_PROGRAMS];
    report_counts(p, count);
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *program = p->programs[k];
        if (!program)
            continue;
        json_t *o = json_object();
        char digest[17];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)program_digest(program));
        put_text(o, "name", program->name);
        put_text(o, "digest", digest);
        put_int(o, "per_step", count[k]);
        put_int(o, "instructions", program->n_instrs);
        put_int(o, "buffers", program->n_buffers);
        put(o, "seconds", program->seconds);
        json_object_set_new(o, "arena", by_tier(program->arena));
        json_object_set_new(o, "lower_bound", by_tier(program->lower_bound));
        json_array_append_new(all, o);
    }
    return all;
}

static json_t *advice_json(const struct advice *advice)
{
    json_t *all = json_array();
    for (int i = 0; advice && i < advice->n; i++) {
        const struct change *x = &advice->by_cost[i];
        json_t *o = json_object();
        put_text(o, "flags", x->say);
        json_object_set_new(o, "exact", json_boolean(x->exact));
        put(o, "seconds", x->seconds);
        put(o, "tokens_per_second", x->per_second);
        json_object_set_new(o, "peak", by_tier(x->arena));
        put_text(o, "settings", x->strategy);
        json_array_append_new(all, o);
    }
    return all;
}

static json_t *layer_kinds_json(const struct explanation *e)
{
    json_t *list = json_array();
    for (int i = 0; i < e->n_kinds; i++) {
        const struct layer_kind *k = &e->kind[i];
        json_t *o = json_object(), *busy = json_object();
        json_object_set_new(o, "window", k->window > 0 ? json_integer(k->window) : json_null());
        if (k->blocks[0])
            put_text(o, "blocks", k->blocks);
        if (k->attends) {
            put_int(o, "heads", k->shape.heads);
            put_int(o, "kv_heads", k->shape.kv_heads);
            put_int(o, "head_dim", k->shape.head_dim);
        }
        put_int(o, "layers", k->layers);
        put_int(o, "kept_chunks", k->kept);
        put(o, "pairs", k->pairs);
        put(o, "compute", k->compute);
        put(o, "attention", k->attention);
        put(o, "waits", k->waits);
        put_int(o, "moved", k->moved);
        for (int l = LANE_H2D; l < LANES; l++)
            if (k->busy[l] > 0)
                put(busy, lane_name((enum lane)l), k->busy[l]);
        json_object_set_new(o, "busy", busy);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *decisions_json(const struct explanation *e)
{
    json_t *all = json_array();
    for (int i = 0; i < e->n; i++) {
        const struct decision *d = &e->decision[i];
        json_t *o = json_object(), *others = json_array();
        put_text(o, "what", d->what);
        put_text(o, "chosen", d->chosen);
        json_object_set_new(o, "given", json_boolean(d->given));
        put_text(o, "note", d->note);
        for (int k = 0; k < d->n; k++) {
            const struct alternative *a = &d->by_cost[k];
            json_t *other = json_object();
            put_text(other, "choice", a->say);
            json_object_set_new(other, "fits", json_boolean(a->fits));
            put(other, "seconds", a->seconds);
            put(other, "slower", a->seconds / e->seconds - 1);
            json_object_set_new(other, "peak", by_tier(a->bytes));
            json_array_append_new(others, other);
        }
        json_object_set_new(o, "alternatives", others);
        json_array_append_new(all, o);
    }
    return all;
}

static json_t *longest_json(const struct plan *p)
{
    const struct longest *l = &p->longest;
    char flags[96];
    json_t *o = json_object();
    plan_longest_flags(p, flags);
    put_text(o, "flags", flags[0] ? flags + 1 : ""); /* flags to type together with the length */
    json_object_set_new(o, "tokens", p->fits ? json_integer(p->tokens / p->sequences) : json_null());
    put_int(o, "step", l->step);
    json_object_set_new(o, "longer", l->longer > 0 ? json_integer(l->longer) : json_null());
    if (l->longer > 0) {
        put_text(o, "longer_misfit", l->beyond ? "program" : tier_name(l->tier));
        json_object_set_new(o, "longer_bytes", l->beyond ? json_null() : json_integer(l->bytes));
    }
    return o;
}

static json_t *stretches_json(const struct plan *p)
{
    json_t *all = json_array();
    for (int i = 0; i < p->n_stretches; i++) {
        const struct plan_stretch *x = &p->stretches[i];
        json_t *o = json_object();
        put_int(o, "seq_len", x->seq_len);
        put_int(o, "first_step", x->first + 1);
        put_int(o, "last_step", x->end);
        json_object_set_new(o, "fits", json_boolean(x->plan->fits));
        put(o, "seconds", x->plan->seconds);
        json_object_set_new(o, "peak", by_tier(x->plan->arena));
        json_object_set_new(o, "strategy", strategy_json(&x->plan->strategy));
        json_object_set_new(o, "programs", programs_json(x->plan));
        json_array_append_new(all, o);
    }
    return all;
}

enum status plan_write_json(const struct plan *p, const struct model *m, const struct plan_request *s,
                            const struct advice *advice, const struct explanation *e, FILE *f)
{
    static const char *const efforts[] = {[EFFORT_BEST] = "best", [EFFORT_NORMAL] = "normal", [EFFORT_QUICK] = "quick"};
    struct report r;
    TRY(report_make(p, m, &r));
    json_t *o = json_object();
    json_object_set_new(o, "fits", json_boolean(p->fits));
    put_text(o, "effort", efforts[p->effort]);
    json_object_set_new(o, "misfit", p->fits ? json_null() : json_string(tier_name(p->misfit)));
    json_object_set_new(o, "model", model_json(m));
    put_int(o, "seq_len", p->tokens / p->sequences);
    put_text(o, "figures_from", p->cost.source);
    json_object_set_new(o, "machine", machine_json(s));
    if (mesh_islands(s))
        json_object_set_new(o, "between_islands", islands_json(mesh_islands(s), strategy_stages(&p->strategy)));
    json_object_set_new(o, "strategy", strategy_json(&p->strategy));
    json_object_set_new(o, "finer_tiles", json_boolean(p->finer)); /* finer than the default tiles */
    json_object_set_new(o, "step", step_json(p, &r));
    json_object_set_new(o, "peak", by_tier(p->arena));
    json_object_set_new(o, "limit", by_tier(p->limit));
    json_object_set_new(o, "lower_bound", by_tier(r.lower_bound));
    json_object_set_new(o, "serial_bound", by_tier(r.serial_bound));
    json_object_set_new(o, "classes", classes_json(p, &r));
    if (m->config.experts > 0)
        json_object_set_new(o, "experts", experts_json(&r));
    json_object_set_new(o, "lanes", lanes_json(p, &r));
    json_object_set_new(o, "programs", programs_json(p));
    json_object_set_new(o, "changes", advice_json(advice));
    if (p->longest.step > 0)
        json_object_set_new(o, "max_seq", longest_json(p));
    if (p->n_stretches > 0)
        json_object_set_new(o, "lengths", stretches_json(p));
    if (e) {
        json_object_set_new(o, "layer_kinds", layer_kinds_json(e));
        json_object_set_new(o, "decisions", decisions_json(e));
    }
    int failed = json_dumpf(o, f, JSON_INDENT(1)) != 0 || fputc('\n', f) == EOF;
    json_decref(o);
    return failed ? status_fail(ERR_IO, "cannot write the plan as JSON: %s", strerror(errno)) : OK;
}
