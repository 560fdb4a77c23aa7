/* Finding and checking the gaps between the buffers of all programs of a plan. */
#include "engine/canary.h"

#include "base/sys.h"
#include "engine/displace.h"

#include <stdlib.h>

#define PATTERN 0xa5
enum { BLOCK = 16 << 10 }; /* bytes read at a time */

struct span {
    int64_t lo, hi;
};

struct canary {
    const struct exec_context *x;
    struct span *gaps[TIERS];
    int n[TIERS];
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Lists the places of a program's buffers in a tier behind the first n of `s`. Returns the new n. */
static int list_places(const struct plan *plan, const struct program *p, enum tier t, enum canary_places places, struct span *s,
                       int n)
{
    const int64_t room = p ? displace_room(plan, p, t) : 0;
    for (int b = 0; p && b < p->n_buffers; b++) {
        const struct buffer *buf = &p->buffers[b];
        const int used = b < p->n_persistent || buf->t1 > buf->t0;
        if (buf->tier != t || !used)
            continue;
        s[n++] = (struct span){buf->address, buf->address + buf->bytes};
        if (places == CANARY_DISPLACED && b >= p->n_persistent)
            s[n++] = (struct span){buf->address + room, buf->address + room + buf->bytes};
    }
    return n;
}

/* Sorts the tier's buffers by address and turns them into the gaps between them, in place. */
static enum status find_gaps(const struct plan *plan, enum tier t, enum canary_places places, struct canary *c)
{
    int cap = 1, n = 0;
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        cap += plan->programs[k] ? 2 * plan->programs[k]->n_buffers : 0;
    struct span *s = sys_malloc(sizeof *s * (size_t)(cap + 1));
    if (!s)
        return status_fail(ERR_NOMEM, "out of memory for canaries");
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        n = list_places(plan, plan->programs[k], t, places, s, n);
    qsort(s, (size_t)n, sizeof *s, by_start);
    int64_t end = 0;
    int gaps = 0;
    for (int i = 0; i < n; i++) {
        struct span next = s[i];
        if (next.lo > end)
            s[gaps++] = (struct span){end, next.lo}; /* gaps <= i: an entry still to be read is never overwritten */
        end = max_i64(end, next.hi);
    }
    if (end < plan->arena[t])
        s[gaps++] = (struct span){end, plan->arena[t]};
    c->gaps[t] = s;
    c->n[t] = gaps;
    return OK;
}

enum status canary_fill(const struct canary *c)
{
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        for (int i = 0; i < c->n[t]; i++)
            TRY(exec_fill(c->x, (enum tier)t, c->gaps[t][i].lo, PATTERN, c->gaps[t][i].hi - c->gaps[t][i].lo));
    return OK;
}

enum status canary_create(const struct plan *plan, const struct exec_context *x, enum canary_places places, struct canary **out)
{
    enum status st = OK;
    struct canary *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory for canaries");
    c->x = x;
    for (int t = TIER_DEVICE; t <= TIER_HOST && st == OK; t++)
        st = find_gaps(plan, (enum tier)t, places, c);
    if (st != OK) {
        canary_destroy(c);
        return st;
    }
    *out = c;
    return OK;
}

void canary_destroy(struct canary *c)
{
    if (!c)
        return;
    for (int t = 0; t < TIERS; t++)
        free(c->gaps[t]);
    free(c);
}

/* Checks a gap's bytes, a block at a time. */
static enum status check_gap(const struct canary *c, enum tier t, struct span gap)
{
    unsigned char seen[BLOCK];
    for (int64_t at = gap.lo, n; at < gap.hi; at += n) {
        n = min_i64(BLOCK, gap.hi - at);
        TRY(exec_read(c->x, t, at, seen, n));
        for (int64_t i = 0; i < n; i++)
            if (seen[i] != PATTERN)
                return status_fail(ERR_CORRUPT,
                                   "a byte outside the plan was written: %s arena, offset %lld, in the gap from %lld to %lld",
                                   tier_name(t), (long long)(at + i), (long long)gap.lo, (long long)gap.hi);
    }
    return OK;
}

enum status canary_check(const struct canary *c)
{
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        for (int i = 0; i < c->n[t]; i++)
            TRY(check_gap(c, (enum tier)t, c->gaps[t][i]));
    return OK;
}
