/* The passes from a lowered program to a complete one (program-notes.md: simulated lifetimes are what keeps lanes from
 * serialising). */
#include "plan/schedule/order.h"

#include "base/sort.h"
#include "base/sys.h"
#include "plan/schedule/hazards.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/waits.h"

#include <math.h>
#include <stdlib.h>

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

/* The program in its present order, and how it came from the lowered one. */
struct schedule {
    struct program *p;
    const struct cost_model *m; /* of the present order */
    struct deps deps;           /* on buffers, of the lowered order */
    int *origin;                /* origin[i]: place of instruction i in the lowered order */
    int *order;                 /* for sorting */
    double *key;                /* what overlap() sorts by, in lowered order */
};

/* Puts the program into the order s->order, which is used up. */
static enum status permute(struct schedule *s)
{
    int n = s->p->n_instrs, *origin = sys_malloc(sizeof *origin * (size_t)(n + 1));
    if (!origin)
        return no_memory();
    for (int i = 0; i < n; i++)
        origin[i] = s->origin[s->order[i]];
    free(s->origin);
    s->origin = origin;
    program_permute(s->p, s->order);
    return OK;
}

static enum status permute_by_key(struct schedule *s)
{
    for (int i = 0; i < s->p->n_instrs; i++)
        s->order[i] = i;
    return sort_by_key(s->key, s->order, s->p->n_instrs) ? permute(s) : no_memory();
}

static enum status permute_back(struct schedule *s)
{
    for (int i = 0; i < s->p->n_instrs; i++)
        s->order[s->origin[i]] = i;
    return permute(s);
}

/* Release keys. Compute runs back to back; write-backs follow their producer; a prefetch ends when it is needed or when the next
 * one on its lane starts, and starts no earlier than `distance` before its use. */
static enum status release_keys(struct schedule *s, double distance)
{
    const struct program *p = s->p;
    const struct deps *d = &s->deps;
    double now = 0, next_start[LANES], *key = s->key, *need = sys_malloc(sizeof *need * 2 * ((size_t)p->n_instrs + 1));
    if (!need)
        return no_memory();
    double *use = need + p->n_instrs;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        need[i] = use[i] = 1e300;
        key[i] = now;
        if (in->lane == LANE_COMPUTE)
            now += cost_seconds(s->m, in, program_call(p, in));
    }
    for (int l = 0; l < LANES; l++)
        next_start[l] = 1e300;
    for (int i = p->n_instrs - 1; i >= 0; i--) {
        const struct instr *in = &p->instrs[i];
        if (in->depth > 0) {
            double end = need[i] < next_start[in->lane] ? need[i] : next_start[in->lane];
            double start = end < 1e299 ? end - cost_seconds(s->m, in, program_call(p, in)) : key[i];
            double first = use[i] < 1e299 ? use[i] - distance : key[i];
            key[i] = start > first ? start : first;
            next_start[in->lane] = fmin(next_start[in->lane], key[i]); /* not where `distance` puts it off */
        } else {
            use[i] = key[i];
        }
        for (int k = d->first[i]; k < d->first[i + 1]; k++) {
            int on = d->dep[k];
            if (key[i] < need[on])
                need[on] = key[i];
            if (use[i] < use[on])
                use[on] = use[i];
        }
    }
    for (int i = 0; i < p->n_instrs; i++)
        for (int k = d->first[i]; k < d->first[i + 1]; k++)
            if (key[d->dep[k]] > key[i])
                key[i] = key[d->dep[k]];
    free(need);
    return OK;
}

/* The instructions of one kind that lie before a moving moment of planned compute time. */
struct follower {
    int at;   /* the next one to look at */
    int last; /* the latest one before the moment; -1: none */
};

static int is_write_back(const struct instr *in)
{
    return in->depth == 0 && (in->lane == LANE_D2H || in->lane == LANE_WRITE);
}

/* When instruction i is planned to have ended. */
static double key_at_end(const struct schedule *s, int i)
{
    const struct instr *in = &s->p->instrs[i];
    return s->key[s->origin[i]] + cost_seconds(s->m, in, program_call(s->p, in));
}

/* Where compute waits, what surrounds it waits too, so that memory is bounded by the distances: a prefetch starts when compute
 * has reached its release, compute goes on when what was to be written `lag` seconds before is written. */
static enum status add_pace(struct schedule *s, double lag, struct deps *d)
{
    struct program *p = s->p;
    int n = p->n_instrs, k = 0, *first = sys_malloc(sizeof *first * (size_t)(n + 1)),
        *dep = sys_malloc(sizeof *dep * (size_t)(d->first[n] + 2 * n + 1));
    struct follower computed = {0, -1}, written[2] = {{0, -1}, {0, -1}};
    static const enum lane lanes[2] = {LANE_D2H, LANE_WRITE};
    if (!first || !dep) {
        free(first);
        free(dep);
        return no_memory();
    }
    for (int i = 0; i < n; i++) {
        const struct instr *in = &p->instrs[i];
        double key = s->key[s->origin[i]];
        first[i] = k;
        for (int e = d->first[i]; e < d->first[i + 1]; e++)
            dep[k++] = d->dep[e];
        if (in->depth > 0) {
            for (; computed.at < i && s->key[s->origin[computed.at]] < key; computed.at++)
                if (p->instrs[computed.at].lane == LANE_COMPUTE && key_at_end(s, computed.at) <= key)
                    computed.last = computed.at;
            if (computed.last >= 0)
                dep[k++] = computed.last;
        } else if (in->lane == LANE_COMPUTE) {
            for (int w = 0; w < 2; w++) {
                int before = written[w].last;
                for (; written[w].at < i && s->key[s->origin[written[w].at]] <= key - lag; written[w].at++)
                    if (p->instrs[written[w].at].lane == lanes[w] && is_write_back(&p->instrs[written[w].at]))
                        written[w].last = written[w].at;
                if (written[w].last != before)
                    dep[k++] = written[w].last;
            }
        }
    }
    first[n] = k;
    hazards_free(d);
    *d = (struct deps){first, dep};
    return OK;
}

/* Sorts by release keys and simulates with unlimited memory. */
static enum status simulate_released(struct schedule *s, double lag)
{
    struct program *p = s->p;
    struct deps d = {0};
    TRY(permute_by_key(s));
    double *release = sys_malloc(sizeof *release * ((size_t)p->n_instrs + 1));
    enum status st = release ? OK : no_memory();
    if (st == OK)
        st = hazards_reorder(&s->deps, s->origin, p->n_instrs, &d);
    if (st == OK && !isinf(lag))
        st = add_pace(s, lag, &d);
    if (st == OK) {
        for (int i = 0; i < p->n_instrs; i++)
            release[i] = p->instrs[i].depth > 0 ? s->key[s->origin[i]] : 0;
        program_simulate(p, s->m, d.first, d.dep, release);
    }
    hazards_free(&d);
    free(release);
    return st;
}

static enum status overlap(struct schedule *s, double distance, double lag)
{
    struct program *p = s->p;
    s->key = sys_malloc(sizeof *s->key * ((size_t)p->n_instrs + 1));
    enum status st = s->key ? release_keys(s, distance) : no_memory();
    if (st == OK)
        st = simulate_released(s, lag);
    if (st == OK) {
        for (int i = 0; i < p->n_instrs; i++)
            s->key[i] = p->instrs[i].start;
        st = permute_by_key(s);
    }
    free(s->key);
    s->key = NULL;
    return st;
}

/* [start of the first access, end of the last): simulated seconds, or positions in the list. */
static void lifetimes(struct program *p, enum schedule_mode mode)
{
    for (int b = 0; b < p->n_buffers; b++) {
        p->buffers[b].t0 = 1e300;
        p->buffers[b].t1 = -1e300;
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        double start = mode == SCHEDULE_SERIAL ? i : in->start, end = mode == SCHEDULE_SERIAL ? i + 1 : in->end;
        for (int k = 0; k < in->n_operands; k++) {
            struct buffer *b = &p->buffers[p->operands[in->first_operand + k].buffer];
            if (start < b->t0)
                b->t0 = start;
            if (end > b->t1)
                b->t1 = end;
        }
    }
    for (int b = 0; b < p->n_buffers; b++)
        if (p->buffers[b].t1 < p->buffers[b].t0)
            p->buffers[b].t0 = p->buffers[b].t1 = 0; /* never used */
}

static void place_persistent(struct program *p)
{
    for (int t = 0; t < TIERS; t++)
        p->arena[t] = 0;
    for (int b = 0; b < p->n_persistent; b++) {
        p->buffers[b].address = p->arena[p->buffers[b].tier];
        p->arena[p->buffers[b].tier] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    }
}

static enum status set_serial_bound(struct program *p)
{
    TRY(pack_live_in_order(p, p->serial_bound));
    for (int b = 0; b < p->n_persistent; b++)
        p->serial_bound[p->buffers[b].tier] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    return OK;
}

enum status schedule_create(struct program *p, struct schedule **out)
{
    size_t n = (size_t)p->n_instrs + 1;
    struct schedule *s = sys_calloc(1, sizeof *s);
    if (!s)
        return no_memory();
    s->p = p;
    s->origin = sys_malloc(sizeof *s->origin * n);
    s->order = sys_malloc(sizeof *s->order * n);
    enum status st = s->origin && s->order ? OK : no_memory();
    if (st == OK)
        st = hazards_find(p, &s->deps);
    if (st == OK)
        st = set_serial_bound(p);
    if (st != OK) {
        schedule_destroy(s);
        return st;
    }
    for (int i = 0; i < p->n_instrs; i++)
        s->origin[i] = i;
    *out = s;
    return OK;
}

/* Frees what further orders would need. */
static void forget_orders(struct schedule *s)
{
    hazards_free(&s->deps);
    free(s->origin);
    free(s->order);
    s->origin = s->order = NULL;
}

void schedule_destroy(struct schedule *s)
{
    if (!s)
        return;
    forget_orders(s);
    free(s);
}

static enum status pack(struct program *p, enum schedule_mode mode, const int64_t *limit, double slack)
{
    int fits = 1;
    lifetimes(p, mode);
    place_persistent(p);
    for (int t = 0; t < TIERS && fits; t++) {
        TRY(pack_tier(p, (enum tier)t, p->arena[t], limit ? limit[t] : INT64_MAX, slack));
        fits = !limit || p->arena[t] <= limit[t];
    }
    return OK;
}

enum status schedule_pack_serially(struct program *p)
{
    return pack(p, SCHEDULE_SERIAL, NULL, 0);
}

enum status schedule_order(struct schedule *s, const struct cost_model *m, enum schedule_mode mode, double distance, double lag,
                           const int64_t *limit, double slack)
{
    s->m = m;
    TRY(permute_back(s));
    if (mode == SCHEDULE_OVERLAPPED)
        TRY(overlap(s, distance, lag));
    return pack(s->p, mode, limit, slack);
}

enum status schedule_simulate(struct program *p, const struct cost_model *m, double *seconds)
{
    struct deps d = {0};
    TRY(waits_as_deps(p, &d));
    *seconds = program_simulate(p, m, d.first, d.dep, NULL);
    hazards_free(&d);
    return OK;
}

enum status schedule_finish(struct schedule *s, const struct cost_model *m)
{
    forget_orders(s);
    TRY(waits_set(s->p));
    return schedule_simulate(s->p, m, &s->p->seconds);
}

enum status schedule_program(struct program *p, const struct cost_model *m, enum schedule_mode mode, double distance)
{
    struct schedule *s;
    TRY(schedule_create(p, &s));
    enum status st = schedule_order(s, m, mode, distance, INFINITY, NULL, 0);
    if (st == OK)
        st = schedule_finish(s, m);
    schedule_destroy(s);
    return st;
}
