/* Hazards on elementary intervals: the end points of all operands cut each tier into intervals that no operand divides. */
#include "plan/hazards.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    int instr, next;
};

struct scan {
    const struct program *p;
    int64_t *buffer_at;  /* address of each buffer in the space */
    int64_t *cut[TIERS]; /* sorted end points */
    int n_cut[TIERS];
    int *writer[TIERS];  /* last writer of each interval, -1 none */
    int *readers[TIERS]; /* readers since then: head of a list, -1 none */
    struct reader *pool;
    int n_pool, cap_pool;
    int *seen; /* seen[d] == i: already a dependency of i */
    int *dep;
    int n_dep, cap_dep;
};

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int find_cut(const struct scan *s, enum tier t, int64_t at)
{
    int lo = 0, hi = s->n_cut[t] - 1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->cut[t][mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void scan_free(struct scan *s)
{
    free(s->buffer_at);
    for (int t = 0; t < TIERS; t++) {
        free(s->cut[t]);
        free(s->writer[t]);
        free(s->readers[t]);
    }
    free(s->pool);
    free(s->seen);
}

static enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space)
{
    memset(s, 0, sizeof *s);
    s->p = p;
    s->buffer_at = sys_malloc(sizeof *s->buffer_at * (size_t)(p->n_buffers + 1));
    s->seen = sys_malloc(sizeof *s->seen * (size_t)(p->n_instrs + 1));
    if (!s->buffer_at || !s->seen)
        return no_memory();
    int64_t next[TIERS] = {0};
    for (int b = 0; b < p->n_buffers; b++) {
        const struct buffer *buf = &p->buffers[b];
        s->buffer_at[b] = space == HAZARD_ADDRESSES ? buf->address : next[buf->tier];
        next[buf->tier] += buf->bytes;
    }
    for (int i = 0; i < p->n_instrs; i++)
        s->seen[i] = -1;
    for (int t = 0; t < TIERS; t++) {
        int64_t *cut = sys_malloc(sizeof *cut * (size_t)(2 * p->n_operands + 1));
        if (!cut)
            return no_memory();
        int n = 0;
        for (int k = 0; k < p->n_operands; k++) {
            const struct operand *o = &p->operands[k];
            if ((int)p->buffers[o->buffer].tier != t)
                continue;
            cut[n++] = s->buffer_at[o->buffer] + o->offset;
            cut[n++] = s->buffer_at[o->buffer] + o->offset + o->bytes;
        }
        qsort(cut, (size_t)n, sizeof *cut, compare_i64);
        int unique = 0;
        for (int k = 0; k < n; k++)
            if (unique == 0 || cut[unique - 1] != cut[k])
                cut[unique++] = cut[k];
        s->cut[t] = cut;
        s->n_cut[t] = unique;
        s->writer[t] = sys_malloc(sizeof(int) * (size_t)(unique + 1));
        s->readers[t] = sys_malloc(sizeof(int) * (size_t)(unique + 1));
        if (!s->writer[t] || !s->readers[t])
            return no_memory();
        for (int k = 0; k < unique; k++)
            s->writer[t][k] = s->readers[t][k] = -1;
    }
    return OK;
}

static int reserve(void **table, int n, int *cap, size_t size)
{
    if (n < *cap)
        return 1;
    int new_cap = *cap ? *cap * 2 : 1024;
    void *bigger = realloc(*table, (size_t)new_cap * size);
    if (!bigger)
        return 0;
    *table = bigger;
    *cap = new_cap;
    return 1;
}

static int depend(struct scan *s, int i, int on)
{
    if (on < 0 || on == i || s->seen[on] == i)
        return 1;
    if (!reserve((void **)&s->dep, s->n_dep, &s->cap_dep, sizeof *s->dep))
        return 0;
    s->seen[on] = i;
    s->dep[s->n_dep++] = on;
    return 1;
}

static int scan_operand(struct scan *s, int i, const struct operand *o)
{
    enum tier t = s->p->buffers[o->buffer].tier;
    int64_t at = s->buffer_at[o->buffer] + o->offset;
    int c0 = find_cut(s, t, at), c1 = find_cut(s, t, at + o->bytes);
    for (int c = c0; c < c1; c++) {
        if (!depend(s, i, s->writer[t][c]))
            return 0;
        if (o->access & ACCESS_WRITE) {
            for (int r = s->readers[t][c]; r >= 0; r = s->pool[r].next)
                if (!depend(s, i, s->pool[r].instr))
                    return 0;
            s->readers[t][c] = -1;
            s->writer[t][c] = i;
        } else {
            if (!reserve((void **)&s->pool, s->n_pool, &s->cap_pool, sizeof *s->pool))
                return 0;
            s->pool[s->n_pool] = (struct reader){i, s->readers[t][c]};
            s->readers[t][c] = s->n_pool++;
        }
    }
    return 1;
}

enum status hazards_find(const struct program *p, enum hazard_space space, struct deps *out)
{
    struct scan s;
    enum status st = scan_prepare(&s, p, space);
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_instrs + 1));
    if (st == OK && !first)
        st = no_memory();
    for (int i = 0; st == OK && i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        first[i] = s.n_dep;
        for (int k = 0; k < in->n_operands; k++)
            if (!scan_operand(&s, i, &p->operands[in->first_operand + k]))
                st = no_memory();
    }
    if (st == OK) {
        first[p->n_instrs] = s.n_dep;
        *out = (struct deps){first, s.dep};
    } else {
        free(first);
        free(s.dep);
    }
    scan_free(&s);
    return st;
}

void hazards_free(struct deps *d)
{
    free(d->first);
    free(d->dep);
    d->first = d->dep = NULL;
}

static void clock_join(int64_t *into, const int64_t *from)
{
    for (int l = 0; l < LANES; l++)
        if (from[l] > into[l])
            into[l] = from[l];
}

/* Instruction of each ticket, lane by lane. */
static int *ticket_index(const struct program *p, int base[LANES])
{
    int count[LANES] = {0};
    for (int i = 0; i < p->n_instrs; i++)
        count[p->instrs[i].lane]++;
    int at = 0;
    for (int l = 0; l < LANES; l++) {
        base[l] = at;
        at += count[l];
    }
    int *index = sys_malloc(sizeof *index * (size_t)(p->n_instrs + 1));
    for (int i = 0; index && i < p->n_instrs; i++)
        index[base[p->instrs[i].lane] + p->instrs[i].ticket - 1] = i;
    return index;
}

enum status hazards_set_waits(struct program *p, const struct deps *d)
{
    int base[LANES], last[LANES];
    int *index = ticket_index(p, base);
    int64_t(*retired)[LANES] = sys_calloc((size_t)p->n_instrs + 1, sizeof *retired); /* known to have retired when i has */
    int64_t(*started)[LANES] = sys_calloc((size_t)p->n_instrs + 1, sizeof *started); /* ... when i starts */
    if (!index || !retired || !started) {
        free(index);
        free(retired);
        free(started);
        return no_memory();
    }
    for (int l = 0; l < LANES; l++)
        last[l] = -1;
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &p->instrs[i];
        int before = last[in->lane];
        int64_t *clock = started[i], want[LANES] = {0};
        if (before >= 0)
            memcpy(clock, lane_is_pipelined(in->lane) ? started[before] : retired[before], sizeof started[i]);
        for (int k = d->first[i]; k < d->first[i + 1]; k++) {
            const struct instr *on = &p->instrs[d->dep[k]];
            if (on->ticket > want[on->lane])
                want[on->lane] = on->ticket;
        }
        in->n_waits = 0;
        for (int l = 0; l < LANES; l++) {
            int needed = want[l] > clock[l];
            for (int other = 0; needed && other < LANES; other++)
                if (other != l && want[other] > clock[other] && retired[index[base[other] + want[other] - 1]][l] >= want[l])
                    needed = 0; /* implied by the wait on the other lane */
            if (needed)
                in->waits[in->n_waits++] = (struct wait){l, want[l]};
        }
        for (int w = 0; w < in->n_waits; w++)
            clock_join(clock, retired[index[base[in->waits[w].lane] + in->waits[w].ticket - 1]]);
        memcpy(retired[i], clock, sizeof retired[i]);
        if (before >= 0)
            clock_join(retired[i], retired[before]);
        retired[i][in->lane] = in->ticket;
        last[in->lane] = i;
    }
    free(index);
    free(retired);
    free(started);
    return OK;
}

enum status hazards_from_waits(const struct program *p, struct deps *out)
{
    int base[LANES], n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].n_waits;
    int *index = ticket_index(p, base);
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_instrs + 1)), *dep = sys_malloc(sizeof *dep * (size_t)(n + 1));
    if (!index || !first || !dep) {
        free(index);
        free(first);
        free(dep);
        return no_memory();
    }
    n = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        first[i] = n;
        for (int w = 0; w < in->n_waits; w++)
            dep[n++] = index[base[in->waits[w].lane] + in->waits[w].ticket - 1];
    }
    first[p->n_instrs] = n;
    free(index);
    *out = (struct deps){first, dep};
    return OK;
}
