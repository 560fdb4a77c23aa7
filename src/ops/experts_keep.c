/* Slots of experts on the device, least recently used first out. */
#include "ops/experts_keep.h"

#include "ops/ops.h"

#include <assert.h>

/* Returns the slot of an expert; -1: it is in none. */
static int32_t find_slot(const struct op_attrs *a, const int32_t *table, int32_t expert)
{
    for (int32_t s = 0; s < a->keep.slots; s++)
        if (table[KEEP_SLOTS + s] == expert + 1)
            return s;
    return -1;
}

/* Returns the slot that was used least recently. Slots of the present call are used later than all others. */
static int32_t oldest_slot(const struct op_attrs *a, const int32_t *table)
{
    const int32_t *used = table + KEEP_SLOTS + a->keep.slots;
    int32_t oldest = 0;
    for (int32_t s = 1; s < a->keep.slots; s++)
        if (used[s] < used[oldest])
            oldest = s;
    assert(used[oldest] < table[KEEP_CALLS]);
    return oldest;
}

/* Moves an expert's matrices into a slot. */
static enum status fill_slot(const struct op_attrs *a, int32_t slot, int32_t expert, const struct experts_mover *mover)
{
    int64_t to = 0, from = 0;
    for (int i = 0; i < KEEP_PIECES && a->keep.bytes[i] > 0; i++) {
        const int64_t bytes = a->keep.bytes[i];
        TRY(mover->move(mover->user, to + slot * bytes, from + expert * bytes, bytes));
        to += a->keep.slots * bytes;
        from += a->keep.experts * bytes;
    }
    return OK;
}

/* Marks the slots of chosen experts as used now, before others take slots. */
static enum status touch_all(const struct op_attrs *a, int32_t *table, int32_t *slots, const int32_t *ids)
{
    int32_t *used = table + KEEP_SLOTS + a->keep.slots;
    for (int64_t i = 0; i < a->keep.rows; i++) {
        if (ids[i] < 0 || ids[i] >= a->keep.experts)
            return status_fail(ERR_CORRUPT, "a token chose expert %d, but experts are numbered from 0 to %d", ids[i],
                               a->keep.experts - 1);
        slots[i] = find_slot(a, table, ids[i]);
        if (slots[i] < 0)
            continue;
        table[KEEP_HITS] += used[slots[i]] < table[KEEP_CALLS];
        used[slots[i]] = table[KEEP_CALLS];
    }
    return OK;
}

enum status ops_experts_keep(const struct op_attrs *a, int32_t *table, int32_t *slots, const int32_t *ids,
                             const struct experts_mover *mover)
{
    int32_t *used = table + KEEP_SLOTS + a->keep.slots;
    table[KEEP_CALLS]++;
    TRY(touch_all(a, table, slots, ids));
    for (int64_t i = 0; i < a->keep.rows; i++) {
        if (slots[i] < 0)
            slots[i] = find_slot(a, table, ids[i]); /* another row of this call chose the expert, too */
        if (slots[i] >= 0)
            continue;
        slots[i] = oldest_slot(a, table);
        table[KEEP_SLOTS + slots[i]] = 0; /* a failed move leaves an empty slot */
        TRY(fill_slot(a, slots[i], ids[i], mover));
        table[KEEP_SLOTS + slots[i]] = ids[i] + 1;
        used[slots[i]] = table[KEEP_CALLS];
        table[KEEP_MISSES]++;
    }
    return OK;
}

/* Matrices in memory. */
struct matrices {
    char *kept;
    const char *home;
};

static enum status copy(void *user, int64_t to, int64_t from, int64_t bytes)
{
    const struct matrices *m = user;
    memcpy(m->kept + to, m->home + from, (size_t)bytes);
    return OK;
}

enum status ops_cpu_experts_keep(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct matrices m = {arg[0], arg[3]};
    (void)stream;
    return ops_experts_keep(a, arg[1], arg[2], arg[4], &(struct experts_mover){copy, &m});
}
