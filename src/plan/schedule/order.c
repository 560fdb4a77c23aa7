/* Passes from a lowered program to a complete one. Passes 1 to 3 may be repeated with other distances; 4 and 5 complete the
 * program.
 *
 *  0. schedule_create: dependencies on buffers (hazards.c) and the least bytes of any order, both of the lowered order.
 *  1. order_overlapped, if lanes overlap: release keys, as late as possible (set_release_keys); stable sort; simulation with
 *     unlimited memory (simulate_released), in which instructions that settle gradients stand in lines of their own (settle.c);
 *     stable sort by simulated start.
 *  2. set_lifetimes: each buffer lives from its first access to its last, in simulated time. Lifetimes by position in the list
 *     would let buffers share bytes across lanes, and the waits for these would serialise the lanes.
 *  3. set_addresses: the persistent buffers, above them those of each tier (pack.c), until a tier exceeds its limit.
 *  4. schedule_finish: hazards on addresses become the fewest waits (waits.c).
 *  5. schedule_simulate: the times of the complete program. */
#include "plan/schedule/order.h"

#include "base/sort.h"
#include "base/sys.h"
#include "machine/virtual_clock.h"
#include "plan/schedule/hazards.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/settle.h"
#include "plan/schedule/waits.h"

#include <math.h>
#include <stdlib.h>

#define NEVER 1e300 /* seconds */

/* The program in its present order, with its relation to the lowered one. */
struct schedule {
    struct program *p;
    const struct cost_model *m; /* costs for which the present order is made; borrowed */
    struct deps deps;           /* dependencies on buffers, in lowered order */
    int *origin;                /* origin[i]: place of instruction i in the lowered order */
    int *order;                 /* scratch for sorting */
    int lowered;                /* 1: the program is in the lowered order */
    double *key;                /* sort keys of order_overlapped, in lowered order */
    struct settling settling;   /* reductions and sums in lowered order */
};

/* Puts the program into the order s->order. */
static enum status permute(struct schedule *s)
{
    s->lowered = 0;
    int n = s->p->n_instrs, *origin = sys_malloc(sizeof *origin * (size_t)(n + 1));
    if (!origin)
        return status_no_memory("while planning");
    for (int i = 0; i < n; i++)
        origin[i] = s->origin[s->order[i]];
    free(s->origin);
    s->origin = origin;
    return program_permute(s->p, s->order) ? OK : status_no_memory("while planning");
}

static enum status permute_by_key(struct schedule *s)
{
    for (int i = 0; i < s->p->n_instrs; i++)
        s->order[i] = i;
    return sort_by_key(s->key, s->order, s->p->n_instrs) ? permute(s) : status_no_memory("while planning");
}

static enum status order_lowered(struct schedule *s)
{
    if (s->lowered)
        return OK;
    for (int i = 0; i < s->p->n_instrs; i++)
        s->order[s->origin[i]] = i;
    TRY(permute(s));
    s->lowered = 1;
    return OK;
}

/* Returns the last key of the instructions that i depends on. */
static double operands_key(const struct schedule *s, int i)
{
    double key = 0;
    for (int k = s->deps.first[i]; k < s->deps.first[i + 1]; k++)
        key = fmax(key, s->key[s->deps.dep[k]]);
    return key;
}

/* Sets s->key, the moments of planned compute time at which instructions are released. Compute runs back to back; a write-back
 * follows its producer. A prefetch ends when its data is needed or when the next prefetch on its lane starts, and starts at most
 * `distance` before its use.
 *
 * A reduction is released with its operands. An update is released ahead of the gather of its results, by the longest time for
 * which compute may be busy. settling: NULL: compute waits for reductions at once. */
static enum status set_release_keys(struct schedule *s, double distance, const struct settling *settling)
{
    const struct program *p = s->p;
    const struct deps *d = &s->deps;
    struct cost_memo memo = {.m = s->m, .p = p};
    double now = 0, longest = 0, next_start[LANES], *key = s->key,
           *need = sys_malloc(sizeof *need * 2 * ((size_t)p->n_instrs + 1));
    if (!need)
        return status_no_memory("while planning");
    double *use = need + p->n_instrs;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        need[i] = use[i] = NEVER;
        key[i] = now;
        if (settling && settling->part[i])
            key[i] = operands_key(s, i);
        if (in->lane == LANE_COMPUTE) {
            double seconds = cost_memo_seconds(&memo, in);
            now += seconds;
            longest = fmax(longest, seconds);
        }
    }
    for (int l = 0; l < LANES; l++)
        next_start[l] = NEVER;
    for (int i = p->n_instrs - 1; i >= 0; i--) {
        const struct instr *in = &p->instrs[i];
        if (in->depth > 0) {
            double end = need[i] < next_start[in->lane] ? need[i] : next_start[in->lane];
            double start = end < NEVER ? end - cost_memo_seconds(&memo, in) : key[i];
            double first = use[i] < NEVER ? use[i] - distance : key[i];
            key[i] = start > first ? start : first;
            next_start[in->lane] =
                fmin(next_start[in->lane],
                     /* earlier transfers on the lane end by this time; if this one starts later because of `distance`, the limit
                      * for them does not rise */
                     key[i]);
        } else {
            if (in->op == OP_ADAMW && in->lane == LANE_COMPUTE && need[i] < key[i])
                key[i] = need[i] - cost_memo_seconds(&memo, in) - fmin(longest, distance);
            use[i] = key[i];
            if (settling && settling->part[i] == SETTLING_REDUCTION && next_start[in->lane] < NEVER)
                next_start[in->lane] -= cost_memo_seconds(&memo, in);
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

/* A cursor over the instructions of one kind, which follows planned compute time. */
struct follower {
    int at;   /* the first instruction that the cursor has not passed */
    int last; /* the latest instruction of the kind before the moment; -1: none */
};

static int is_write_back(const struct instr *in)
{
    return in->depth == 0 && (in->lane == LANE_D2H || in->lane == LANE_WRITE);
}

/* Returns the planned moment of the end of instruction i. */
static double key_at_end(const struct schedule *s, struct cost_memo *memo, int i)
{
    return s->key[s->origin[i]] + cost_memo_seconds(memo, &s->p->instrs[i]);
}

/* Tells whether an instruction waits until compute has reached its release: a prefetch where the lag is finite, and a message between
 * stages, since lowering spreads these over layers (plan/lower/stage.h). */
static int is_paced(const struct instr *in, double lag)
{
    return in->lane == LANE_PP || (in->depth > 0 && !isinf(lag));
}

/* Adds dependencies so that the distances bound memory even while compute waits. A prefetch starts only when compute has reached
 * its release. Compute goes on only when the write-backs that were released `lag` seconds before have ended. */
static enum status add_throttles(struct schedule *s, double lag, struct deps *d)
{
    struct program *p = s->p;
    int n = p->n_instrs, k = 0, *first = sys_malloc(sizeof *first * (size_t)(n + 1)),
        *dep = sys_malloc(sizeof *dep * (size_t)(d->first[n] + 2 * n + 1));
    struct cost_memo memo = {.m = s->m, .p = p};
    struct follower computed = {0, -1}, written[2] = {{0, -1}, {0, -1}};
    static const enum lane lanes[2] = {LANE_D2H, LANE_WRITE};
    if (!first || !dep) {
        free(first);
        free(dep);
        return status_no_memory("while planning");
    }
    for (int i = 0; i < n; i++) {
        const struct instr *in = &p->instrs[i];
        double key = s->key[s->origin[i]];
        first[i] = k;
        for (int e = d->first[i]; e < d->first[i + 1]; e++)
            dep[k++] = d->dep[e];
        if (is_paced(in, lag)) {
            for (; computed.at < i && s->key[s->origin[computed.at]] < key; computed.at++)
                if (p->instrs[computed.at].lane == LANE_COMPUTE && key_at_end(s, &memo, computed.at) <= key)
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
static enum status simulate_released(struct schedule *s, double lag, const struct settling *settling)
{
    struct program *p = s->p;
    struct deps d = {0};
    TRY(permute_by_key(s));
    double *release = sys_malloc(sizeof *release * ((size_t)p->n_instrs + 1));
    double *planned = sys_malloc(sizeof *planned * ((size_t)p->n_instrs + 1));
    uint8_t *in = settling ? sys_malloc((size_t)p->n_instrs + 1) : NULL;
    const struct second_lines second = {in, planned};
    enum status st = release && planned && (in || !settling) ? OK : status_no_memory("while planning");
    if (st == OK)
        st = hazards_reorder(settling ? &settling->deps : &s->deps, s->origin, p->n_instrs, &d);
    if (st == OK && (!isinf(lag) || p->group_size[LANE_PP] > 1))
        st = add_throttles(s, lag, &d);
    if (st == OK) {
        for (int i = 0; i < p->n_instrs; i++) {
            planned[i] = s->key[s->origin[i]];
            release[i] = p->instrs[i].depth > 0 ? planned[i] : 0;
            if (in)
                in[i] = settling->part[s->origin[i]] != SETTLING_NONE;
        }
        program_simulate_lines(p, s->m, d.first, d.dep, release, in ? &second : NULL);
    }
    hazards_free(&d);
    free(release);
    free(planned);
    free(in);
    return st;
}

static enum status order_overlapped(struct schedule *s, enum schedule_mode mode, double distance, double lag)
{
    struct program *p = s->p;
    s->key = sys_malloc(sizeof *s->key * ((size_t)p->n_instrs + 1));
    const struct settling *settling = mode == SCHEDULE_OVERLAPPED && s->settling.part ? &s->settling : NULL;
    enum status st = s->key ? set_release_keys(s, distance, settling) : status_no_memory("while planning");
    if (st == OK)
        st = simulate_released(s, lag, settling);
    if (st == OK) {
        for (int i = 0; i < p->n_instrs; i++)
            s->key[i] = p->instrs[i].start;
        st = permute_by_key(s);
    }
    free(s->key);
    s->key = NULL;
    return st;
}

/* Sets [t0, t1) of each buffer: from the start of its first access to the end of its last, in simulated seconds or, serially, in
 * positions in the list. */
static void set_lifetimes(struct program *p, enum schedule_mode mode)
{
    for (int b = 0; b < p->n_buffers; b++) {
        p->buffers[b].t0 = NEVER;
        p->buffers[b].t1 = -NEVER;
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
        return status_no_memory("while planning");
    s->p = p;
    s->origin = sys_malloc(sizeof *s->origin * n);
    s->order = sys_malloc(sizeof *s->order * n);
    enum status st = s->origin && s->order ? OK : status_no_memory("while planning");
    if (st == OK)
        st = hazards_find(p, &s->deps);
    if (st == OK)
        st = settling_find(p, &s->deps, &s->settling);
    if (st == OK)
        st = set_serial_bound(p);
    if (st != OK) {
        schedule_destroy(s);
        return st;
    }
    for (int i = 0; i < p->n_instrs; i++)
        s->origin[i] = i;
    s->lowered = 1;
    *out = s;
    return OK;
}

/* Frees all that is needed only to order the program again. */
static void forget_orders(struct schedule *s)
{
    hazards_free(&s->deps);
    free(s->origin);
    free(s->order);
    settling_free(&s->settling);
    s->origin = s->order = NULL;
}

void schedule_destroy(struct schedule *s)
{
    if (!s)
        return;
    forget_orders(s);
    free(s);
}

/* Sets the addresses of all buffers. limit, slack: as schedule_order. */
static enum status set_addresses(struct program *p, const int64_t *limit, double slack)
{
    int fits = 1;
    place_persistent(p);
    for (int t = 0; t < TIERS && fits; t++) {
        TRY(pack_tier(p, (enum tier)t, p->arena[t], limit ? limit[t] : INT64_MAX, slack));
        fits = !limit || p->arena[t] <= limit[t];
    }
    return OK;
}

enum status schedule_pack_serially(struct program *p)
{
    set_lifetimes(p, SCHEDULE_SERIAL);
    return set_addresses(p, NULL, 0);
}

enum status schedule_order(struct schedule *s, const struct cost_model *m, enum schedule_mode mode, double distance, double lag,
                           const int64_t *limit, double slack)
{
    s->m = m;
    TRY(order_lowered(s));
    if (mode != SCHEDULE_SERIAL)
        TRY(order_overlapped(s, mode, distance, lag));
    set_lifetimes(s->p, mode);
    return set_addresses(s->p, limit, slack);
}

enum status schedule_simulate(struct program *p, const struct cost_model *m, double *seconds)
{
    struct deps d = {0};
    TRY(waits_as_deps(p, &d));
    *seconds = program_simulate(p, m, d.first, d.dep, NULL);
    hazards_free(&d);
    return OK;
}

enum status schedule_complete(struct schedule *s, const struct cost_model *m)
{
    TRY(waits_set(s->p));
    return schedule_simulate(s->p, m, &s->p->seconds);
}

enum status schedule_finish(struct schedule *s, const struct cost_model *m)
{
    forget_orders(s);
    return schedule_complete(s, m);
}
