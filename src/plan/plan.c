/* Strategy search and program sets. */
#include "plan/plan.h"

#include "base/sys.h"
#include "base/units.h"
#include "plan/pack.h"
#include "plan/schedule.h"
#include "seqpar/seqpar.h"

#include <stdlib.h>
#include <string.h>

/* Heads of one rank; of their KV heads each serves `group` of them. */
struct local_heads {
    int64_t heads, kv_heads, group;
};

static struct local_heads local_heads(const struct model_config *c, const struct strategy *s)
{
    struct local_heads l = {.heads = c->heads / s->ulysses, .kv_heads = max_i64(1, c->kv_heads / s->ulysses)};
    l.group = l.heads / l.kv_heads;
    return l;
}

/* Head tiles are whole KV groups, or equal parts of one (which would send keys and values around a ring again and again). */
static int head_tile_legal(const struct local_heads *l, int64_t t, int ring)
{
    if (t <= 0 || t > l->heads)
        return 0;
    return t >= l->group ? t % l->group == 0 && l->kv_heads % (t / l->group) == 0 : ring == 1 && l->group % t == 0;
}

/* Elements of a group: 128 groups in the largest unit, and messages worth sending between many ranks. */
static int64_t default_group(const struct model *m, int ranks)
{
    int64_t most = 0, group = 1 << 20;
    for (int u = 0; u < m->n_units; u++)
        most = max_i64(most, m->units[u].elements);
    while (group * 128 < most || group < (int64_t)ranks << 14)
        group *= 2;
    return group;
}

enum status plan_tiles(const struct model *m, const struct settings *s, struct strategy *out)
{
    const struct model_config *c = &m->config;
    struct local_heads l = local_heads(c, out);
    out->row_chunk = s->row_chunk > 0 ? s->row_chunk : max_i64(2048, round_up(out->rows / 64, 1024));
    out->row_chunk = min_i64(out->row_chunk, out->rows);
    if (s->head_tile > 0) {
        if (!head_tile_legal(&l, s->head_tile, out->ring))
            return status_fail(ERR_INVALID,
                               "tiles: heads=%lld does not fit %lld query heads on %lld KV heads%s: take a multiple of %lld that "
                               "divides %lld%s",
                               (long long)s->head_tile, (long long)l.heads, (long long)l.kv_heads,
                               out->ulysses > 1 ? " of a rank" : "", (long long)l.group, (long long)l.heads,
                               out->ring == 1 ? ", or a divisor of it" : "");
        out->head_tile = (int)s->head_tile;
    } else {
        /* wide tiles make better matrix products; from 64k tokens on memory counts more */
        int64_t t = l.group;
        while (s->seq_len <= 65536 && t * c->head_dim < 512 && 2 * t <= l.heads && head_tile_legal(&l, 2 * t, out->ring))
            t *= 2;
        out->head_tile = (int)t;
    }
    int64_t loss = s->loss_tile > 0 ? min_i64(s->loss_tile, out->row_chunk) : out->row_chunk;
    if (s->loss_tile > 0 && out->row_chunk < out->rows && out->row_chunk % loss)
        return status_fail(ERR_INVALID, "tiles: loss=%lld must divide the row chunk of %lld tokens", (long long)loss,
                           (long long)out->row_chunk);
    /* logits in fp32: a quarter of the residual stream, which is there in any case */
    int64_t logits = max_i64(64 << 20, out->rows * c->dim * dtype_size(s->dtype) / 4);
    while (s->loss_tile <= 0 && loss * c->vocab * 4 > logits && loss % 2 == 0)
        loss /= 2;
    out->loss_tile = loss;
    out->group = s->group > 0 ? s->group : default_group(m, out->ranks);
    return OK;
}

static enum residency residency_of(enum offload o)
{
    return o == OFFLOAD_CPU ? RES_HOST : o == OFFLOAD_NVME ? RES_NVME : RES_DEVICE;
}

/* From cheapest to leanest: what a class gets if the settings leave it open. */
static const struct candidate {
    enum residency optim, grads, params, acts;
    double alpha;
} candidates[] = {
    {RES_DEVICE, RES_DEVICE, RES_DEVICE, RES_DEVICE, 1.0}, {RES_HOST, RES_DEVICE, RES_DEVICE, RES_DEVICE, 1.0},
    {RES_HOST, RES_DEVICE, RES_DEVICE, RES_DEVICE, 0.5},   {RES_HOST, RES_DEVICE, RES_DEVICE, RES_DEVICE, 0.0},
    {RES_HOST, RES_HOST, RES_DEVICE, RES_HOST, 1.0},       {RES_HOST, RES_HOST, RES_HOST, RES_HOST, 1.0},
    {RES_HOST, RES_HOST, RES_HOST, RES_HOST, 0.5},         {RES_HOST, RES_HOST, RES_HOST, RES_HOST, 0.0},
    {RES_NVME, RES_HOST, RES_HOST, RES_HOST, 0.5},         {RES_NVME, RES_HOST, RES_HOST, RES_HOST, 0.0},
    {RES_NVME, RES_NVME, RES_NVME, RES_HOST, 0.0},         {RES_NVME, RES_NVME, RES_NVME, RES_NVME, 1.0},
    {RES_NVME, RES_NVME, RES_NVME, RES_NVME, 0.5},         {RES_NVME, RES_NVME, RES_NVME, RES_NVME, 0.0},
};
#define N_CANDIDATES ((int)(sizeof candidates / sizeof *candidates))

static void apply_candidate(const struct settings *s, const struct candidate *c, struct strategy *st)
{
    st->params = s->params == OFFLOAD_AUTO ? c->params : residency_of(s->params);
    st->grads = s->grads == OFFLOAD_AUTO ? c->grads : residency_of(s->grads);
    st->optim = s->optim == OFFLOAD_AUTO ? c->optim : residency_of(s->optim);
    st->acts = s->acts == OFFLOAD_AUTO ? c->acts : residency_of(s->acts);
    double alpha = s->alpha < 0 ? c->alpha : s->alpha;
    st->kept_chunks = (int)(alpha * (double)ceil_div(st->rows, st->row_chunk) + 0.5);
    st->update_on_host = s->update == UPDATE_HOST || (s->update == UPDATE_AUTO && st->optim != RES_DEVICE);
}

static int same_strategy(const struct strategy *a, const struct strategy *b)
{
    return a->params == b->params && a->grads == b->grads && a->optim == b->optim && a->acts == b->acts &&
           a->kept_chunks == b->kept_chunks && a->update_on_host == b->update_on_host;
}

/* Roles of the programs a run needs; 0: not needed. */
static void program_roles(const struct settings *s, int role[PLAN_PROGRAMS])
{
    int first = ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | (s->grad_accum == 1 ? ROLE_LAST : 0);
    memset(role, 0, sizeof(int) * PLAN_PROGRAMS);
    role[PLAN_STEP] = first;
    role[PLAN_UPDATE_STEP] = first | ROLE_UPDATE;
    if (s->grad_accum > 2)
        role[PLAN_MORE] = ROLE_FORWARD | ROLE_BACKWARD;
    if (s->grad_accum > 1)
        role[PLAN_LAST] = ROLE_FORWARD | ROLE_BACKWARD | ROLE_LAST;
    role[PLAN_FLUSH] = ROLE_UPDATE;
    if (s->eval_every > 0)
        role[PLAN_EVAL] = ROLE_FORWARD;
}

static int over_limit(const int64_t arena[TIERS], const int64_t limit[TIERS], enum tier *which)
{
    for (int t = 0; t < TIERS; t++)
        if (arena[t] > limit[t]) {
            *which = (enum tier)t;
            return 1;
        }
    return 0;
}

/* Compute seconds of one row chunk of one layer pass: the unit of prefetch distances. */
static double chunk_seconds(const struct program *p, const struct cost_model *m, const struct strategy *s, int64_t layers)
{
    double total = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == LANE_COMPUTE)
            total += cost_seconds(m, &p->instrs[i]);
    return total / (double)(3 * layers * ceil_div(s->rows, s->row_chunk));
}

/* Orders the program with the longest distance that fits, found by bisection (memory grows with the distance); serially, which is
 * the leanest, if no distance does. */
static enum status order_within(struct schedule *schedule, const struct program *p, const struct strategy *s, double unit,
                                const int64_t limit[TIERS])
{
    static const double automatic[] = {64, 16, 8, 4, 2, 1, 0.25, 0};
    const double fixed[] = {s->prefetch}, *distance = s->prefetch >= 0 ? fixed : automatic;
    int lo = 1, hi = s->prefetch >= 0 ? 1 : 8, at; /* the first that fits is in [lo, hi]; the end: none, the serial order */
    enum tier which;
    TRY(schedule_order(schedule, SCHEDULE_OVERLAPPED, distance[0] * unit));
    if (!over_limit(p->arena, limit, &which))
        return OK;
    TRY(schedule_order(schedule, SCHEDULE_SERIAL, 0));
    if (over_limit(p->arena, limit, &which))
        return OK;
    for (at = hi; lo < hi;) {
        at = (lo + hi) / 2;
        TRY(schedule_order(schedule, SCHEDULE_OVERLAPPED, distance[at] * unit));
        if (over_limit(p->arena, limit, &which))
            lo = at + 1;
        else
            hi = at;
    }
    if (at == hi)
        return OK;
    return hi == 8 ? schedule_order(schedule, SCHEDULE_SERIAL, 0)
                   : schedule_order(schedule, SCHEDULE_OVERLAPPED, distance[hi] * unit);
}

static enum status plan_one(const struct model *m, const struct strategy *s, const struct cost_model *cost, int role,
                            const int64_t limit[TIERS], struct io_buffers *io, struct program **out)
{
    struct program *p;
    struct schedule *schedule = NULL;
    enum status st;
    TRY(lower_program(m, s, role, io, &p));
    TRY_GOTO(schedule_create(p, cost, &schedule), done);
    TRY_GOTO(order_within(schedule, p, s, chunk_seconds(p, cost, s, m->config.layers), limit), done);
    st = schedule_finish(schedule);
done:
    schedule_destroy(schedule);
    if (st == OK)
        *out = p;
    else
        program_destroy(p);
    return st;
}

static enum status account(struct plan *plan)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *p = plan->programs[k];
        if (!p)
            continue;
        int *moment = pack_moments(p->buffers, NULL, p->n_buffers);
        if (!moment)
            return status_fail(ERR_NOMEM, "out of memory while planning");
        memset(plan->persistent, 0, sizeof plan->persistent);
        for (int b = 0; b < p->n_persistent; b++)
            plan->persistent[p->buffers[b].tier][p->buffers[b].class] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        int64_t live[TIERS][CLASSES];
        memcpy(live, plan->persistent, sizeof live);
        for (int t = 0; t < TIERS; t++) {
            for (int c = 0; c < CLASSES; c++)
                plan->peak[t][c] = max_i64(plan->peak[t][c], live[t][c]);
            plan->arena[t] = max_i64(plan->arena[t], p->arena[t]);
        }
        for (int i = 0; i < 2 * p->n_buffers; i++) {
            const struct buffer *b = &p->buffers[moment[i] / 2];
            int64_t bytes = moment[i] / 2 < p->n_persistent ? 0 : round_up(b->bytes, BUFFER_ALIGN);
            live[b->tier][b->class] += moment[i] % 2 ? bytes : -bytes;
            plan->peak[b->tier][b->class] = max_i64(plan->peak[b->tier][b->class], live[b->tier][b->class]);
        }
        free(moment);
    }
    return OK;
}

static enum status plan_set(const struct model *m, const struct settings *s, const struct strategy *strategy,
                            const struct cost_model *cost, const int64_t limit[TIERS], struct plan **out)
{
    int role[PLAN_PROGRAMS];
    struct plan *plan = sys_calloc(1, sizeof *plan);
    if (!plan)
        return status_fail(ERR_NOMEM, "out of memory while planning");
    plan->strategy = *strategy;
    plan->cost = *cost;
    memcpy(plan->limit, limit, sizeof plan->limit);
    program_roles(s, role);
    enum status st = OK;
    static const enum plan_program order[PLAN_PROGRAMS] = {PLAN_UPDATE_STEP, PLAN_STEP,  PLAN_MORE,
                                                           PLAN_LAST,        PLAN_FLUSH, PLAN_EVAL};
    plan->fits = 1;
    for (int i = 0; i < PLAN_PROGRAMS && plan->fits; i++) { /* what the first one refuses needs no further look */
        struct program **p = &plan->programs[order[i]];
        if (!role[order[i]])
            continue;
        TRY_GOTO(plan_one(m, strategy, cost, role[order[i]], limit, &plan->io, p), fail);
        plan->fits = !over_limit((*p)->arena, limit, &plan->misfit);
        plan->seconds += order[i] == PLAN_UPDATE_STEP || order[i] == PLAN_LAST ? (*p)->seconds
                         : order[i] == PLAN_MORE                               ? (*p)->seconds * (double)(s->grad_accum - 2)
                                                                               : 0;
    }
    plan->sequences = s->batch > 0 ? s->batch : s->grad_accum;
    plan->micro_batches = s->grad_accum;
    plan->tokens = s->seq_len * plan->sequences;
    if (!plan->fits) /* not all were planned */
        plan->seconds = plan->programs[PLAN_UPDATE_STEP]->seconds * (double)s->grad_accum;
    TRY_GOTO(account(plan), fail);
    *out = plan;
    return OK;
fail:
    plan_destroy(plan);
    return st;
}

static int degree(int given)
{
    return given > 0 ? given : 1;
}

enum status plan_create(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct plan **out)
{
    struct strategy strategy = {.dp = degree(s->dp),
                                .ulysses = degree(s->ulysses),
                                .ring = degree(s->ring),
                                .wire = s->grad_dtype,
                                .dtype = s->dtype,
                                .moments = s->optim_dtype,
                                .prefetch = s->prefetch,
                                .discrete = s->device == DEVICE_CPU_DISCRETE || s->device == DEVICE_CUDA},
                    previous = {.kept_chunks = -1};
    struct cost_model cost;
    struct seq_shape shape;
    TRY(seq_shape_create(s->seq_len, strategy.ulysses, strategy.ring, SEQ_AUTO, &shape));
    strategy.seq_len = shape.padded;
    strategy.rows = seq_rank_rows(&shape);
    strategy.ranks = strategy.dp * strategy.ulysses * strategy.ring;
    strategy.zero = strategy.ranks > 1 ? s->zero : 0;
    TRY(plan_tiles(m, s, &strategy));
    plan_cost_model(s, &cost);
    struct plan *plan = NULL;
    for (int i = 0; i < N_CANDIDATES; i++) {
        apply_candidate(s, &candidates[i], &strategy);
        if (same_strategy(&strategy, &previous))
            continue;
        previous = strategy;
        struct plan *next = NULL;
        enum status st = plan_set(m, s, &strategy, &cost, limit, &next);
        if (st != OK) {
            plan_destroy(plan);
            return st;
        }
        if (!plan || next->fits || next->arena[plan->misfit] < plan->arena[plan->misfit]) {
            plan_destroy(plan);
            plan = next;
        } else {
            plan_destroy(next);
        }
        if (plan->fits)
            break;
    }
    *out = plan;
    return OK;
}

void plan_destroy(struct plan *p)
{
    if (!p)
        return;
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        program_destroy(p->programs[k]);
    free(p);
}
