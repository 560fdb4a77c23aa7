/* Bringing plans to life, and loading their state. */
#include "engine/session.h"

#include "base/memory.h"
#include "base/sys.h"
#include "base/units.h"
#include "device/plugin.h"
#include "engine/again.h"
#include "engine/backend_cpu.h"
#include "engine/bounce.h"
#include "engine/chaos.h"
#include "engine/displace.h"
#include "engine/packed.h"
#include "engine/scrub.h"
#include "engine/session_state.h"
#include "engine/source.h"
#include "engine/weights.h"
#include "model/part.h"
#include "offload/places.h"
#include "plan/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes lazily allocated memory resident before the first step: the kernels' threads start at the first large op, and hwloc reads
 * the machine's topology at the first question, which would otherwise be a lane's. */
static void warm_up(struct session *s)
{
    enum { BYTES = 4 << 20 };
    char line[256];
    places_describe(line, sizeof line);
    void *x = sys_malloc(BYTES);
    if (!x)
        return;
    (void)s->context.host_kernels[OP_FILL](&(struct op_attrs){.fill = {.bytes = BYTES}}, (void *[]){x}, s->context.host_stream);
    free(x);
}

static size_t predicates_of(const struct plan *p)
{
    return (size_t)(MODEL_MASKS * 2 * p->strategy.key.mesh.degree[MESH_RING] + plan_any(p)->predicates + STAGE_PREDICATES + 1);
}

/* Sets the rank's communicator and its predicates, all of which hold until a batch says otherwise. */
static enum status join_ranks(struct session *x, struct comm *comm)
{
    const struct strategy *s = &x->plan->strategy;
    x->comm = comm;
    if (!comm) {
        TRY(comm_create_self(&x->own_comm));
        x->comm = x->own_comm;
    }
    struct mesh mesh = comm_mesh(x->comm);
    char plans[MESH_TEXT], has[MESH_TEXT];
    if (!mesh_equal(&mesh, &s->key.mesh))
        return status_fail(ERR_INVALID, "the plan is for %s, but the ranks are %s", mesh_format(&s->key.mesh, plans),
                           mesh_format(&mesh, has));
    size_t predicates = predicates_of(x->plan);
    x->predicates = sys_malloc(predicates);
    if (!x->predicates)
        return status_fail(ERR_NOMEM, "out of memory for the session");
    memset(x->predicates, 1, predicates);
    x->context.comm = x->comm;
    x->context.predicates = x->predicates;
    return OK;
}

int64_t session_staging_bytes(const struct model *m, const struct plan *plan)
{
    int64_t most = 0;
    for (int u = 0; u < m->n_units; u++)
        most = max_i64(most, max_i64(m->units[u].elements * 4, m->units[u].packed_bytes));
    return 2 * round_up(min_i64(plan->strategy.key.group * 4, most), BUFFER_ALIGN);
}

static enum status make_staging(struct session *x)
{
    x->staging_bytes = session_staging_bytes(x->model, x->plan) / 2;
    x->staging = sys_malloc((size_t)(2 * x->staging_bytes));
    if (!x->staging)
        return status_fail(ERR_NOMEM, "out of memory for the session");
    memset(x->staging, 0, (size_t)(2 * x->staging_bytes)); /* resident before the first step */
    x->context.staging = x->staging;
    return OK;
}

/* Opens the GPU that the settings name, or this rank's share of the visible ones. */
static enum status open_gpu(struct session *x, const struct settings *s)
{
    const struct device_plugin *plugin;
    int device = s->gpu, n = 0;
    TRY(device_plugin_load(&plugin));
    enum status st = plugin->count(&n);
    if (st == OK)
        st = plugin->open(device >= 0 ? device : comm_local_rank(x->comm) % n, x->plan->strategy.target, &x->backend);
    if (st != OK)
        return status_fail(st, "%s", plugin->sentence());
    x->shares_device = s->gpu_sharing > 1;
    return OK;
}

static enum status look_at_free(const struct session *x, int64_t *bytes)
{
    struct backend *b = x->backend;
    *bytes = 0;
    return b->free_bytes && !x->shares_device ? backend_status(b, b->free_bytes(b, bytes)) : OK;
}

#define SAME_MEMORY ((int64_t)2 << 20) /* the driver's rounding */

enum status session_check_device_memory(const struct session *s, int64_t before)
{
    char more[32];
    int64_t now;
    TRY(look_at_free(s, &now));
    if (now >= before - SAME_MEMORY)
        return OK;
    return status_fail(ERR_NOMEM,
                       "%s: %s more are taken than when the first step began: another program uses this GPU, or something "
                       "allocated in the steps",
                       s->backend->name, units_format_bytes(before - now, more));
}

static enum status open_cpu(struct session *x, const struct settings *s)
{
    const struct backend_cpu_config c = {.discrete = s->plan.device == DEVICE_CPU_DISCRETE,
                                         .link_bytes_per_second = s->plan.link_gbps > 0 ? s->plan.link_gbps * 1e9 : 0,
                                         .threads = x->plan->strategy.target->threads};
    return backend_cpu_create(&c, &x->backend);
}

/* Opens the device that the settings name, the carrier of its messages, and the plan's arena. */
static enum status open_device(struct session *x, const struct settings *s)
{
    enum status st = s->plan.device == DEVICE_CUDA ? open_gpu(x, s) : open_cpu(x, s);
    TRY(s->plan.device == DEVICE_CUDA ? comm_agree(x->comm, st) : st);
    if (!x->plan->strategy.discrete && !x->backend->host_reaches)
        return status_fail(ERR_INVALID, "the plan lets drives and host reach device memory, which --device %s does not allow",
                           x->backend->name);
    x->context.backend = x->backend;
    TRY(carrier_open(&x->context, s->carrier, &x->carrier));
    TRY(look_at_free(x, &x->free_opened));
    return backend_status(x->backend, x->backend->allocate(x->backend, x->arena[TIER_DEVICE]));
}

/* Opens the host arena, pinned by the backend if it copies from there, else by the arena itself. */
static enum status open_host(struct session *x)
{
    struct backend *b = x->backend;
    TRY(arena_create("host arena", x->arena[TIER_HOST], b->pin ? ARENA_PLACED : ARENA_PINNED, &x->host));
    x->context.host = arena_base(x->host);
    return b->pin ? backend_status(b, b->pin(b, arena_base(x->host), arena_bytes(x->host))) : OK;
}

int64_t session_message_bytes(const struct plan *plan)
{
    return bounce_bytes(plan->programs, PLAN_PROGRAMS);
}

/* Makes room for the counts of messages that a library carries. */
static enum status make_counts(struct session *x)
{
    int64_t bytes = 0;
    for (int k = 0; k < x->n_programs && x->context.carried; k++)
        bytes = x->programs[k] ? max_i64(bytes, exec_count_bytes(x->programs[k])) : bytes;
    x->context.counts = bytes > 0 ? sys_calloc(1, (size_t)bytes) : NULL;
    return bytes > 0 && !x->context.counts ? status_fail(ERR_NOMEM, "out of memory for the session") : OK;
}

/* Opens bounce buffers between the communicator and a device that only copies reach. */
static enum status open_bounce(struct session *x)
{
    if (!x->backend->streams || comm_size(x->comm) == 1 || x->context.carried)
        return OK;
    enum status st = bounce_create(&x->context, x->programs, x->n_programs, &x->bounce);
    x->context.bounce = x->bounce;
    return st;
}

static enum status prepare_kernels(struct session *x)
{
    for (int k = 0; k < x->n_programs; k++)
        if (x->programs[k])
            TRY(exec_prepare(&x->context, x->programs[k]));
    return look_at_free(x, &x->free_prepared);
}

/* Takes the plans over and computes the arenas that they need together. */
static enum status take_plans(struct session *x, struct plan *const *plans, int n)
{
    x->n_plans = n;
    for (int i = 0; i < n; i++)
        x->plans[i].plan = plans[i];
    x->plan = plans[0];
    x->n_programs = n * PLAN_PROGRAMS;
    x->programs = sys_calloc((size_t)x->n_programs, sizeof *x->programs);
    if (!x->programs)
        return status_fail(ERR_NOMEM, "out of memory for the session");
    for (int i = 0; i < n; i++) {
        memcpy(x->programs + i * PLAN_PROGRAMS, plans[i]->programs, sizeof plans[i]->programs);
        for (int t = 0; t < TIERS; t++)
            x->arena[t] = max_i64(x->arena[t], plans[i]->arena[t]);
    }
    return OK;
}

/* Verifies all plans: nothing runs that the verifier has not accepted. */
static enum status verify_plans(const struct session *x)
{
    for (int i = 0; i < x->n_plans; i++)
        TRY(plan_verify_ranks(x->plans[i].plan));
    return OK;
}

static enum status open_store(struct session *x, const char *const *paths, int n)
{
    struct store_config c = {.n_paths = n,
                             .bytes = x->arena[TIER_NVME],
                             .pinned = arena_base(x->host),
                             .pinned_bytes = arena_bytes(x->host),
                             .rank = comm_rank(x->comm)};
    if (c.bytes == 0)
        return OK;
    for (int i = 0; i < n; i++)
        c.paths[i] = paths[i];
    TRY(store_open(&c, &x->store));
    x->context.store = x->store;
    return OK;
}

static enum status make_canaries(struct session *x, const struct settings *s)
{
    const enum canary_places places = s->verify_every > 0 ? CANARY_DISPLACED : CANARY_PLANNED;
    for (int i = 0; i < x->n_plans; i++)
        TRY(canary_create(x->plans[i].plan, &x->context, places, &x->plans[i].canary));
    x->canary = x->plans[0].canary;
    return canary_fill(x->canary);
}

/* Makes what finds errors of memory and processors, as far as the settings ask for it. */
static enum status make_checks(struct session *x, const struct settings *s)
{
    if (s->verify_every > 0)
        TRY(again_create(x->slice ? x->slice : x->model, &x->again));
    x->context.again = x->again;
    if (!s->scrub)
        return OK;
    if (x->chaos)
        return status_fail(ERR_INVALID, "--scrub is not for --mode chaos, which overwrites memory on purpose: leave one out");
    TRY(scrub_create(x->slice ? x->slice : x->model, x->context.host, &x->scrub));
    x->context.scrub = x->scrub;
    return scrub_use(x->scrub, x->plan);
}

/* Cuts this rank's slice of the model, unless the model is one already. */
static enum status make_slice(struct session *x)
{
    const struct model *m = x->model;
    const struct model_part part = {m->part.first_layer, m->part.layers, comm_member(x->comm, LANE_TP),
                                    mesh_degree(&x->plan->strategy.key.mesh, MESH_TP)};
    return part.slices > m->part.slices ? model_part_create(m->whole, &part, &x->slice) : OK;
}

enum status session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s,
                           struct comm *comm, const char *const *nvme_paths, int n_paths, struct session **out)
{
    enum status st = OK;
    struct session *x = sys_calloc(1, sizeof *x);
    if (!x) {
        for (int i = 0; i < n_plans; i++)
            plan_destroy(plans[i]);
        return status_fail(ERR_NOMEM, "out of memory for the session");
    }
    x->model = m;
    TRY_GOTO(take_plans(x, plans, n_plans), fail);
    TRY_GOTO(join_ranks(x, comm), fail);
    TRY_GOTO(make_slice(x), fail);
    x->chaos = s->mode == MODE_CHAOS;
    TRY_GOTO(verify_plans(x), fail);
    TRY_GOTO(open_device(x, s), fail);
    TRY_GOTO(open_host(x), fail);
    TRY_GOTO(open_bounce(x), fail);
    TRY_GOTO(make_counts(x), fail);
    TRY_GOTO(open_store(x, nvme_paths, n_paths), fail);
    TRY_GOTO(backend_cpu_kernels(x->context.host_kernels), fail);
    x->host_stream.threads = x->plan->strategy.target->threads;
    x->context.host_stream = &x->host_stream;
    TRY_GOTO(make_staging(x), fail);
    TRY_GOTO(make_canaries(x, s), fail);
    TRY_GOTO(make_checks(x, s), fail);
    TRY_GOTO(prepare_kernels(x), fail);
    TRY_GOTO(executor_create(&x->context, x->programs, x->n_programs, &x->executor), fail);
    warm_up(x);
    x->overhead_bytes = memory_proc_bytes("/proc/self/status", "VmRSS") - x->backend->host_bytes - arena_bytes(x->host);
    *out = x;
    return OK;
fail:
    if (x->context.carried) /* aborts the library's messages: leaving in order would wait for the other ranks, which stay */
        x->backend->abort(x->backend);
    session_destroy(x);
    return st;
}

enum status session_use(struct session *s, const struct plan *plan)
{
    int i = 0;
    if (plan == s->plan)
        return OK;
    while (s->plans[i].plan != plan)
        i++;
    TRY(session_check_memory(s));
    s->plan = s->plans[i].plan;
    s->canary = s->plans[i].canary;
    memset(s->predicates, 1, predicates_of(s->plan));
    TRY(scrub_use(s->scrub, s->plan));
    return canary_fill(s->canary);
}

/* Tells whether messages are still under way after a program failed. MPI continues to read and write their memory as long as this
 * process talks to the others, so the memory stays until the process ends. */
static int are_messages_left(const struct session *s)
{
    return s->comm && s->comm != s->own_comm && comm_size(s->comm) > 1 && (comm_broken(s->comm) || comm_is_busy(s->comm));
}

static void free_memory(struct session *s)
{
    if (s->backend)
        s->backend->close(s->backend); /* unpins the host arena and the bounce buffers */
    arena_destroy(s->host);
    bounce_destroy(s->bounce);
}

void session_destroy(struct session *s)
{
    if (!s)
        return;
    executor_destroy(s->executor);
    const int keep = are_messages_left(s);
    comm_destroy(s->own_comm);
    for (int i = 0; i < s->n_plans; i++)
        canary_destroy(s->plans[i].canary);
    scrub_destroy(s->scrub);
    again_destroy(s->again);
    store_close(s->store);
    if (s->context.carried && comm_broken(s->comm))
        s->backend->abort(s->backend);
    if (!keep)
        free_memory(s);
    for (int i = 0; i < s->n_plans; i++)
        plan_destroy(s->plans[i].plan);
    model_destroy(s->slice);
    free(s->programs);
    free(s->context.counts);
    free(s->staging);
    free(s->predicates);
    free(s);
}

void *session_io(struct session *s, int buffer)
{
    return s->context.host + plan_any(s->plan)->buffers[buffer].address;
}

enum status session_run(struct session *s, enum plan_program which, struct trace_event *trace)
{
    if (s->chaos)
        return chaos_run(&s->context, s->plan->programs[which], s->chaos++);
    scrub_take(s->scrub);
    return executor_run(s->executor, s->plan->programs[which], trace);
}

void session_displace(struct session *s, int sign)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (s->plan->programs[k])
            displace_program(s->plan, s->plan->programs[k], sign);
}

enum status session_flush_checked(struct session *s, int64_t number)
{
    again_choose(s->again, s->plan->programs[PLAN_FLUSH], number);
    const enum status st = session_run(s, PLAN_FLUSH, NULL);
    again_choose(s->again, NULL, 0);
    return st;
}

enum status session_clear_keys(struct session *s)
{
    const struct program *p = s->plan->programs[PLAN_FORWARD];
    const struct copies *keys = &p->copies[COPIES_KEYS];
    for (int k = 0; k < keys->count; k++)
        for (int b = keys->first; b < keys->first + keys->n; b++)
            TRY(exec_fill(&s->context, TIER_DEVICE, p->buffers[b].address + k * keys->bytes[TIER_DEVICE], 0,
                          p->buffers[b].bytes));
    return OK;
}

/* Moves a program's buffers to other copies. */
static void move_copies(struct program *p, const int by[COPIES], int sign)
{
    for (int k = 0; k < COPIES; k++)
        for (int b = p->copies[k].first; b < p->copies[k].first + p->copies[k].n; b++)
            p->buffers[b].address += sign * by[k] * p->copies[k].bytes[p->buffers[b].tier];
}

enum status session_run_half(struct session *s, enum plan_program which, const struct half_run *half, struct trace_event *trace)
{
    struct program *p = s->plan->programs[which];
    const int backward = which >= PLAN_BACKWARD_FIRST && which != PLAN_PASS_FORWARD;
    const struct strategy *strategy = &s->plan->strategy;
    const int gradients = backward == strategy->ahead; /* which of the two kinds of message the half has */
    uint8_t *bits = s->predicates + program_stage_predicate(strategy->key.mesh.degree[MESH_RING], p->masks, gradients);
    bits[0] = half->sends != 0;
    bits[1] = half->receives != 0;
    move_copies(p, half->copy, 1);
    enum status st = session_run(s, which, trace);
    move_copies(p, half->copy, -1);
    return st;
}

double session_loss(struct session *s)
{
    const struct strategy *st = &s->plan->strategy;
    const double *part = session_io(s, s->plan->io.loss);
    int64_t n = st->ranks * ceil_div(strategy_end_rows(st) / mesh_degree(&st->key.mesh, MESH_TP), st->key.loss_tile);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += part[i];
    return sum;
}

/* Fills in every matrix's piece within bytes [first, first + n) of a unit's packed range. */
static enum status source_fill_packed(void *user, int unit, int64_t first, int64_t n, uint8_t *data)
{
    struct source *src = user;
    const struct model *m = src->slice ? src->slice : src->model;
    for (int i = m->units[unit].first_param; i < m->units[unit].first_param + m->units[unit].n_params; i++) {
        const struct model_param *p = &m->params[i];
        int64_t a = max_i64(first, p->packed_offset), b = min_i64(first + n, p->packed_offset + p->packed_bytes);
        if (a < b)
            TRY(packed_read(src, i, a - p->packed_offset, b - a, data + (a - first)));
    }
    return OK;
}

enum status session_load_packed(struct session *s, struct source *src, int unit)
{
    src->slice = s->slice;
    return session_visit_packed(s, unit, STATE_WRITE, source_fill_packed, src);
}

/* Fills in every parameter's piece within a part of a unit. */
static enum status source_fill(void *user, const struct state_part *part)
{
    struct source *src = user;
    const struct model *m = src->model;
    for (int i = 0; i < m->units[part->unit].n_params; i++) {
        int index = m->units[part->unit].first_param + i;
        const struct model_param *p = &m->params[index];
        int64_t a = max_i64(part->first, p->offset), b = min_i64(part->first + part->n, p->offset + p->elements);
        if (a < b)
            TRY(source_read(src, index, a - p->offset, b - a, part->type,
                            (char *)part->data + (a - part->first) * dtype_size(part->type)));
    }
    return OK;
}

static enum status fill_parameters(struct session *s, struct source *src)
{
    TRY(session_fill(s, (struct state_range){0, s->model->n_units, STATE_PARAM, STATE_MASTER}, source_fill, src));
    for (int u = 0; u < s->model->n_units; u++)
        TRY(session_load_packed(s, src, u));
    return session_zero_moments(s);
}

enum status session_initialise(struct session *s, uint64_t seed)
{
    s->origin = (struct origin){.kind = ORIGIN_SEED, .seed = seed};
    session_set_base(s, NULL, seed);
    struct source src = {.model = s->model, .seed = seed};
    enum status st = fill_parameters(s, &src);
    source_close(&src);
    return st;
}

/* Checks the values of parameters that no sequence reaches: they are not loaded, but copied into every checkpoint. */
static enum status check_unused(struct session *s, struct st_file *f)
{
    int64_t chunk = s->staging_bytes / (int64_t)sizeof(float);
    for (int i = 0; i < s->model->n_params; i++) {
        const struct model_param *p = &s->model->params[i];
        int64_t end = model_param_stored(p);
        for (int64_t at = p->elements; at < end && p->packed_bytes == 0; at += chunk)
            TRY(weights_read(f, p, at, min_i64(chunk, end - at), F32, s->staging));
    }
    return OK;
}

static enum status check_unchanged(const struct st_file *f, uint64_t before)
{
    uint64_t now;
    TRY(st_stamp(f, &now));
    if (now == before)
        return OK;
    return status_fail(ERR_CORRUPT, "%s: the files changed while they were read: start again once nothing writes there",
                       st_path(f, NULL));
}

static enum status load_from(struct session *s, struct source *src, const char *path)
{
    if (src->adapter)
        TRY(source_check_adapter(src));
    for (int i = 0; src->adapter && i < s->model->n_params; i++)
        if (s->model->params[i].trained && s->model->params[i].elements < model_param_stored(&s->model->params[i]))
            return status_fail(
                ERR_INVALID,
                "--adapter: %s is trained as a whole, and this run reaches only a part of it: give it a --seq-len of %lld",
                s->model->params[i].name, (long long)s->model->params[i].shape[0]);
    s->origin = (struct origin){.kind = path ? ORIGIN_WEIGHTS : ORIGIN_SEED, .seed = src->seed};
    snprintf(s->origin.path, sizeof s->origin.path, "%s", path ? path : "");
    if (path)
        TRY(st_stamp(src->file, &s->origin.stamp));
    TRY(fill_parameters(s, src));
    if (!path)
        return OK;
    TRY(check_unused(s, src->file));
    return check_unchanged(src->file, s->origin.stamp);
}

void session_set_base(struct session *s, const char *path, uint64_t seed)
{
    snprintf(s->base, sizeof s->base, "%s", path ? path : "");
    s->base_seed = seed;
}

enum status session_load_adapted(struct session *s, const char *path, const char *adapter, uint64_t seed)
{
    struct source src;
    TRY(source_open(s->model, path, adapter, seed, &src));
    session_set_base(s, path, seed);
    enum status st = load_from(s, &src, path);
    source_close(&src);
    return st;
}

enum status session_load(struct session *s, const char *path)
{
    return session_load_adapted(s, path, NULL, 0);
}

enum status session_zero_moments(struct session *s)
{
    return session_fill(s, (struct state_range){0, s->model->n_units, STATE_M, STATE_V}, NULL, NULL);
}

enum status session_check_memory(struct session *s)
{
    TRY(backend_status(s->backend, s->backend->check(s->backend)));
    TRY(arena_check(s->host));
    return canary_check(s->canary);
}
