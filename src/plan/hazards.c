/* Hazards on segments: bytes that were accessed alike so far, one list of them per bucket of bytes. */
#include "plan/hazards.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    int instr, next;
};

struct segment {
    int64_t lo, hi; /* bytes of the buffer, or addresses */
    int writer;     /* last one, -1 none */
    int readers;    /* since then: head of a list of its own, -1 none; of an arena's, the latest of each lane */
    int next;       /* in the bucket, ascending */
};

/* The bytes of a buffer are one bucket; those of an arena are cut into stretches of 2^shift, so that none has many segments. */
struct scan {
    const struct program *p;
    enum hazard_space space;
    int first_bucket[TIERS], shift[TIERS]; /* HAZARD_ADDRESSES */
    int *bucket;                           /* first segment, -1 none */
    int *cursor;                           /* segment of the last access, for those in ascending order; -1 none */
    struct segment *segment;
    int n_segment, cap_segment, spare; /* spare: list of unused ones */
    struct reader *reader;
    int n_reader, cap_reader, spare_reader;
    int *last; /* HAZARD_BUFFERS: instruction after which nothing touches the buffer, so that its segments are spare */
    int *seen; /* seen[d] == i: already a dependency of i */
    int *dep;
    int n_dep, cap_dep;
};

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

static void scan_free(struct scan *s)
{
    free(s->bucket);
    free(s->cursor);
    free(s->segment);
    free(s->reader);
    free(s->last);
    free(s->seen);
}

/* Buckets of the arenas: about four per buffer, and not more than pay off. Returns their number. */
static int cut_arenas(struct scan *s)
{
    int count[TIERS] = {0}, n = 0;
    for (int b = 0; b < s->p->n_buffers; b++)
        count[s->p->buffers[b].tier]++;
    for (int t = 0; t < TIERS; t++) {
        int64_t bytes = s->p->arena[t] + 1, most = t == TIER_DEVICE ? 4096 : 65536,
                wanted = min_i64(4 * (int64_t)count[t] + 1, most);
        s->first_bucket[t] = n;
        for (s->shift[t] = 12; bytes >> s->shift[t] >= wanted; s->shift[t]++)
            ;
        n += (int)(bytes >> s->shift[t]) + 1;
    }
    return n;
}

static enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space)
{
    memset(s, 0, sizeof *s);
    s->p = p;
    s->space = space;
    s->spare = s->spare_reader = -1;
    int n = space == HAZARD_BUFFERS ? p->n_buffers : cut_arenas(s);
    s->bucket = sys_malloc(sizeof *s->bucket * (size_t)(n + 1));
    s->cursor = sys_malloc(sizeof *s->cursor * (size_t)(n + 1));
    s->seen = sys_malloc(sizeof *s->seen * (size_t)(p->n_instrs + 1));
    s->last = sys_malloc(sizeof *s->last * (size_t)(space == HAZARD_BUFFERS ? n + 1 : 1));
    if (!s->bucket || !s->cursor || !s->seen || !s->last)
        return no_memory();
    for (int i = 0; space == HAZARD_BUFFERS && i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++)
            s->last[p->operands[p->instrs[i].first_operand + k].buffer] = i;
    for (int b = 0; b < n; b++)
        s->bucket[b] = s->cursor[b] = -1;
    for (int i = 0; i < p->n_instrs; i++)
        s->seen[i] = -1;
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

/* A segment between `before` (-1: at the head of the bucket) and what follows that; -1 out of memory. */
static int segment_insert(struct scan *s, int bucket, int before, struct segment g)
{
    int k = s->spare;
    if (k >= 0) {
        s->spare = s->segment[k].next;
    } else {
        if (!reserve((void **)&s->segment, s->n_segment, &s->cap_segment, sizeof *s->segment))
            return -1;
        k = s->n_segment++;
    }
    int *link = before < 0 ? &s->bucket[bucket] : &s->segment[before].next;
    g.next = *link;
    s->segment[k] = g;
    *link = k;
    return k;
}

/* Puts a reader before those of a list. */
static int add_reader(struct scan *s, int *readers, int instr)
{
    int r = s->spare_reader;
    if (r >= 0) {
        s->spare_reader = s->reader[r].next;
    } else {
        if (!reserve((void **)&s->reader, s->n_reader, &s->cap_reader, sizeof *s->reader))
            return 0;
        r = s->n_reader++;
    }
    s->reader[r] = (struct reader){instr, *readers};
    *readers = r;
    return 1;
}

static void forget_readers(struct scan *s, int *readers)
{
    int r = *readers;
    if (r < 0)
        return;
    while (s->reader[r].next >= 0)
        r = s->reader[r].next;
    s->reader[r].next = s->spare_reader;
    s->spare_reader = *readers;
    *readers = -1;
}

/* Ends the segment at `at`, which lies within it; the rest becomes the one after it. */
static int segment_split(struct scan *s, int bucket, int k, int64_t at)
{
    struct segment rest = s->segment[k];
    rest.lo = at;
    rest.readers = -1;
    for (int r = s->segment[k].readers; r >= 0; r = s->reader[r].next)
        if (!add_reader(s, &rest.readers, s->reader[r].instr))
            return 0;
    s->segment[k].hi = at;
    return segment_insert(s, bucket, k, rest) >= 0;
}

/* Of addresses, only waits are wanted: for the latest ticket of each lane. */
static int read_segment(struct scan *s, int i, int k)
{
    struct segment *g = &s->segment[k];
    const struct instr *in = s->p->instrs;
    if (!depend(s, i, g->writer))
        return 0;
    for (int r = g->readers; r >= 0 && s->space == HAZARD_ADDRESSES; r = s->reader[r].next)
        if (in[s->reader[r].instr].lane == in[i].lane) {
            s->reader[r].instr = i;
            return 1;
        }
    return add_reader(s, &g->readers, i);
}

static int write_segment(struct scan *s, int i, int k)
{
    struct segment *g = &s->segment[k];
    for (int r = g->readers; r >= 0; r = s->reader[r].next)
        if (!depend(s, i, s->reader[r].instr))
            return 0;
    forget_readers(s, &g->readers);
    int last = g->writer;
    g->writer = i;
    return depend(s, i, last);
}

/* Bytes [lo, hi) of one bucket. */
static int scan_bytes(struct scan *s, int i, int bucket, int64_t lo, int64_t hi, int write)
{
    int before = s->cursor[bucket], k;
    if (before >= 0 && s->segment[before].hi > lo)
        before = -1;
    k = before < 0 ? s->bucket[bucket] : s->segment[before].next;
    while (k >= 0 && s->segment[k].hi <= lo) {
        before = k;
        k = s->segment[k].next;
    }
    s->cursor[bucket] = before;
    int written = -1; /* the segment of this write, which takes in those that follow */
    while (lo < hi) {
        if (k < 0 || s->segment[k].lo > lo) { /* never accessed */
            int64_t end = k < 0 || s->segment[k].lo > hi ? hi : s->segment[k].lo;
            k = segment_insert(s, bucket, before, (struct segment){lo, end, -1, -1, -1});
            if (k < 0)
                return 0;
        }
        if (s->segment[k].lo < lo) {
            if (!segment_split(s, bucket, k, lo))
                return 0;
            before = k;
            k = s->segment[k].next;
        }
        if (s->segment[k].hi > hi && !segment_split(s, bucket, k, hi))
            return 0;
        if (!(write ? write_segment(s, i, k) : read_segment(s, i, k)))
            return 0;
        lo = s->segment[k].hi;
        if (written >= 0) {
            s->segment[written].hi = lo;
            s->segment[written].next = s->segment[k].next;
            s->segment[k].next = s->spare;
            s->spare = k;
        } else {
            written = write ? k : -1;
            before = k;
        }
        k = s->segment[before].next;
    }
    return 1;
}

static int scan_operand(struct scan *s, int i, const struct operand *o)
{
    const struct buffer *b = &s->p->buffers[o->buffer];
    int write = (o->access & ACCESS_WRITE) != 0;
    if (s->space == HAZARD_BUFFERS)
        return scan_bytes(s, i, o->buffer, o->offset, o->offset + o->bytes, write);
    int64_t at = b->address + o->offset, end = at + o->bytes;
    while (at < end) {
        int64_t stretch = at >> s->shift[b->tier], stop = min_i64(end, (stretch + 1) << s->shift[b->tier]);
        if (!scan_bytes(s, i, s->first_bucket[b->tier] + (int)stretch, at, stop, write))
            return 0;
        at = stop;
    }
    return 1;
}

/* The segments of a buffer that nothing touches any more. */
static void forget_buffer(struct scan *s, int b)
{
    for (int k = s->bucket[b], next; k >= 0; k = next) {
        next = s->segment[k].next;
        forget_readers(s, &s->segment[k].readers);
        s->segment[k].next = s->spare;
        s->spare = k;
    }
    s->bucket[b] = -1;
}

static int scan_instr(struct scan *s, int i)
{
    const struct instr *in = &s->p->instrs[i];
    const struct operand *o = &s->p->operands[in->first_operand];
    for (int k = 0; k < in->n_operands; k++)
        if (!scan_operand(s, i, &o[k]))
            return 0;
    for (int k = 0; k < in->n_operands && s->space == HAZARD_BUFFERS; k++)
        if (s->last[o[k].buffer] == i)
            forget_buffer(s, o[k].buffer);
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
        first[i] = s.n_dep;
        if (!scan_instr(&s, i))
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

enum status hazards_reorder(const struct deps *d, const int *order, int n, struct deps *out)
{
    int *first = sys_malloc(sizeof *first * (size_t)(n + 1)), *dep = sys_malloc(sizeof *dep * (size_t)(d->first[n] + 1));
    int *at = sys_malloc(sizeof *at * (size_t)(n + 1)), k = 0;
    if (!first || !dep || !at) {
        free(first);
        free(dep);
        free(at);
        return no_memory();
    }
    for (int i = 0; i < n; i++)
        at[order[i]] = i;
    for (int i = 0; i < n; i++) {
        first[i] = k;
        for (int e = d->first[order[i]]; e < d->first[order[i] + 1]; e++)
            dep[k++] = at[d->dep[e]];
    }
    first[n] = k;
    free(at);
    *out = (struct deps){first, dep};
    return OK;
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

/* Highest ticket of each lane known to have retired. */
struct clock {
    int32_t ticket[LANES];
};

static void clock_join(struct clock *into, const struct clock *from)
{
    for (int l = 0; l < LANES; l++)
        if (from->ticket[l] > into->ticket[l])
            into->ticket[l] = from->ticket[l];
}

enum status hazards_set_waits(struct program *p, const struct deps *d)
{
    int base[LANES], last[LANES];
    int *index = ticket_index(p, base);
    struct clock *retired = sys_malloc(sizeof *retired * (size_t)(p->n_instrs + 1)); /* known when i has retired */
    struct clock started[LANES] = {0};                                               /* ... when the lane's last one started */
    if (!index || !retired) {
        free(index);
        free(retired);
        return no_memory();
    }
    for (int l = 0; l < LANES; l++)
        last[l] = -1;
    p->n_waits = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &p->instrs[i];
        int before = last[in->lane];
        struct clock *clock = &started[in->lane];
        int32_t want[LANES] = {0};
        if (before >= 0 && !lane_is_pipelined(in->lane))
            *clock = retired[before];
        for (int k = d->first[i]; k < d->first[i + 1]; k++) {
            const struct instr *on = &p->instrs[d->dep[k]];
            if (on->ticket > want[on->lane])
                want[on->lane] = on->ticket;
        }
        in->n_waits = 0;
        for (int l = 0; l < LANES; l++) {
            int needed = want[l] > clock->ticket[l];
            for (int other = 0; needed && other < LANES; other++)
                if (other != l && want[other] > clock->ticket[other] &&
                    retired[index[base[other] + want[other] - 1]].ticket[l] >= want[l])
                    needed = 0; /* implied by the wait on the other lane */
            if (needed)
                program_add_wait(p, i, (struct wait){l, want[l]});
        }
        for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
            clock_join(clock, &retired[index[base[w->lane] + w->ticket - 1]]);
        retired[i] = *clock;
        if (before >= 0)
            clock_join(&retired[i], &retired[before]);
        retired[i].ticket[in->lane] = in->ticket;
        last[in->lane] = i;
    }
    free(index);
    free(retired);
    return p->out_of_memory ? no_memory() : OK;
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
        for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
            dep[n++] = index[base[w->lane] + w->ticket - 1];
    }
    first[p->n_instrs] = n;
    free(index);
    *out = (struct deps){first, dep};
    return OK;
}
