/* Segments: bytes that were accessed alike so far, one list of them per bucket of bytes. */
#include "plan/hazards_scan.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static enum status no_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while planning");
}

void scan_free(struct scan *s)
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

enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space)
{
    memset(s, 0, sizeof *s);
    s->p = p;
    s->space = space;
    s->spare = s->spare_reader = -1;
    int n = space == HAZARD_BUFFERS ? p->n_buffers : cut_arenas(s);
    s->bucket = sys_malloc(sizeof *s->bucket * (size_t)(n + 1));
    s->cursor = sys_malloc(sizeof *s->cursor * (size_t)(n + 1));
    if (!s->bucket || !s->cursor)
        return no_memory();
    for (int b = 0; b < n; b++)
        s->bucket[b] = s->cursor[b] = -1;
    if (space == HAZARD_ADDRESSES)
        return OK;
    s->seen = sys_malloc(sizeof *s->seen * (size_t)(p->n_instrs + 1));
    s->last = sys_malloc(sizeof *s->last * (size_t)(n + 1));
    if (!s->seen || !s->last)
        return no_memory();
    for (int i = 0; i < p->n_instrs; i++) {
        s->seen[i] = -1;
        for (int k = 0; k < p->instrs[i].n_operands; k++)
            s->last[p->operands[p->instrs[i].first_operand + k].buffer] = i;
    }
    return OK;
}

static int reserve(void **table, int n, int *cap, size_t size)
{
    if (n < *cap)
        return 1;
    int new_cap = *cap ? *cap * 2 : 1024;
    void *bigger = sys_realloc(*table, (size_t)new_cap * size);
    if (!bigger)
        return 0;
    *table = bigger;
    *cap = new_cap;
    return 1;
}

#define LANE_BITS 4

static int access_of(const struct scan *s, int i)
{
    const struct instr *in = &s->p->instrs[i];
    return s->space == HAZARD_BUFFERS ? i : in->ticket << LANE_BITS | in->lane;
}

static int lane_of(int access)
{
    return access & ((1 << LANE_BITS) - 1);
}

/* What is accessed now depends on what was before. */
static int depend(struct scan *s, int i, int on)
{
    if (on < 0 || on == i)
        return 1;
    if (s->space == HAZARD_ADDRESSES) {
        int32_t *want = &s->want[lane_of(on)], ticket = on >> LANE_BITS;
        *want = ticket > *want ? ticket : *want;
        return 1;
    }
    if (s->seen[on] == i)
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
static int add_reader(struct scan *s, int *readers, int access)
{
    int r = s->spare_reader;
    if (r >= 0) {
        s->spare_reader = s->reader[r].next;
    } else {
        if (!reserve((void **)&s->reader, s->n_reader, &s->cap_reader, sizeof *s->reader))
            return 0;
        r = s->n_reader++;
    }
    s->reader[r] = (struct reader){access, *readers};
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
        if (!add_reader(s, &rest.readers, s->reader[r].access))
            return 0;
    s->segment[k].hi = at;
    return segment_insert(s, bucket, k, rest) >= 0;
}

/* Of addresses, only waits are wanted: for the latest ticket of each lane. */
static int read_segment(struct scan *s, int i, int k)
{
    struct segment *g = &s->segment[k];
    if (!depend(s, i, g->writer))
        return 0;
    for (int r = g->readers; r >= 0 && s->space == HAZARD_ADDRESSES; r = s->reader[r].next)
        if (lane_of(s->reader[r].access) == lane_of(i)) {
            s->reader[r].access = i;
            return 1;
        }
    return add_reader(s, &g->readers, i);
}

static int write_segment(struct scan *s, int i, int k)
{
    struct segment *g = &s->segment[k];
    for (int r = g->readers; r >= 0; r = s->reader[r].next)
        if (!depend(s, i, s->reader[r].access))
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

int scan_instr(struct scan *s, int i)
{
    const struct instr *in = &s->p->instrs[i];
    const struct operand *o = &s->p->operands[in->first_operand];
    int access = access_of(s, i);
    memset(s->want, 0, sizeof s->want);
    for (int k = 0; k < in->n_operands; k++)
        if (!scan_operand(s, access, &o[k]))
            return 0;
    for (int k = 0; k < in->n_operands && s->space == HAZARD_BUFFERS; k++)
        if (s->last[o[k].buffer] == i)
            forget_buffer(s, o[k].buffer);
    return 1;
}
