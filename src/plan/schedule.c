/* The passes from a lowered program to a complete one (program-notes.md: simulated lifetimes are what keeps lanes from
 * serialising). */
#include "plan/schedule.h"

#include "base/sys.h"
#include "plan/hazards.h"
#include "plan/pack.h"

#include <stdlib.h>

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

static const double *sort_keys;

static int by_key(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    if (sort_keys[x] != sort_keys[y])
        return sort_keys[x] < sort_keys[y] ? -1 : 1;
    return x - y;
}

static enum status permute_by(struct program *p, const double *key)
{
    int *order = sys_malloc(sizeof *order * (size_t)(p->n_instrs + 1));
    if (!order)
        return no_memory();
    for (int i = 0; i < p->n_instrs; i++)
        order[i] = i;
    sort_keys = key;
    qsort(order, (size_t)p->n_instrs, sizeof *order, by_key);
    enum status st = program_permute(p, order);
    free(order);
    return st;
}

/* Release keys. Compute runs back to back; write-backs follow their producer; a prefetch ends when it is needed or when the next
 * one on its lane starts, and starts no earlier than `distance` before its use. */
static void release_keys(struct program *p, const struct cost_model *m, const struct deps *d, double distance, double *key,
                         double *need, double *use)
{
    double now = 0, next_start[LANES];
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        need[i] = use[i] = 1e300;
        key[i] = now;
        if (in->lane == LANE_COMPUTE)
            now += cost_seconds(m, in);
    }
    for (int l = 0; l < LANES; l++)
        next_start[l] = 1e300;
    for (int i = p->n_instrs - 1; i >= 0; i--) {
        const struct instr *in = &p->instrs[i];
        if (in->depth > 0) {
            double end = need[i] < next_start[in->lane] ? need[i] : next_start[in->lane];
            double start = end < 1e299 ? end - cost_seconds(m, in) : key[i];
            double first = use[i] < 1e299 ? use[i] - distance : key[i];
            key[i] = next_start[in->lane] = start > first ? start : first;
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
}

static enum status overlap(struct program *p, const struct cost_model *m, double distance)
{
    struct deps d = {0};
    enum status st;
    size_t n = (size_t)p->n_instrs + 1;
    double *key = sys_malloc(sizeof *key * n), *need = sys_malloc(sizeof *need * n), *use = sys_malloc(sizeof *use * n);
    if (!key || !need || !use) {
        st = no_memory();
        goto out;
    }
    TRY_GOTO(hazards_find(p, HAZARD_BUFFERS, &d), out);
    release_keys(p, m, &d, distance, key, need, use);
    for (int i = 0; i < p->n_instrs; i++)
        p->instrs[i].release = p->instrs[i].depth > 0 ? key[i] : 0;
    TRY_GOTO(permute_by(p, key), out);
    hazards_free(&d);
    TRY_GOTO(hazards_find(p, HAZARD_BUFFERS, &d), out);
    program_simulate(p, m, d.first, d.dep, 1);
    for (int i = 0; i < p->n_instrs; i++)
        key[i] = p->instrs[i].start;
    st = permute_by(p, key);
out:
    hazards_free(&d);
    free(key);
    free(need);
    free(use);
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

enum status schedule_program(struct program *p, const struct cost_model *m, enum schedule_mode mode, double distance)
{
    struct deps d = {0};
    if (mode == SCHEDULE_OVERLAPPED)
        TRY(overlap(p, m, distance));
    lifetimes(p, mode);
    place_persistent(p);
    for (int t = 0; t < TIERS; t++)
        TRY(pack_tier(p, (enum tier)t, p->arena[t]));
    TRY(hazards_find(p, HAZARD_ADDRESSES, &d));
    enum status st = hazards_set_waits(p, &d);
    hazards_free(&d);
    TRY(st);
    TRY(hazards_from_waits(p, &d));
    p->seconds = program_simulate(p, m, d.first, d.dep, 0);
    hazards_free(&d);
    return OK;
}
