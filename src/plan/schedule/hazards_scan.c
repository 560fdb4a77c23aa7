/* Segments: ranges of bytes that the same instructions have accessed, in lists by address. */
#include "plan/schedule/hazards_scan.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

void scan_free(struct scan *s)
{
    free(s->at);
    free(s->cursor);
    free(s->segment);
    free(s->reader);
    free(s->wide);
    free(s->wide_read);
    free(s->last);
    free(s->seen);
}

/* Cuts each arena into stretches of equal length, about four per buffer and at most 65536. Returns the number of all stretches. */
static int cut_arenas(struct scan *s)
{
    int count[TIERS] = {0}, n = 0;
    for (int b = 0; b < s->p->n_buffers; b++)
        count[s->p->buffers[b].tier]++;
    for (int t = 0; t < TIERS; t++) {
        int64_t bytes = s->p->arena[t] + 1, wanted = min_i64(4 * (int64_t)count[t] + 1, 65536);
        s->first_stretch[t] = n;
        for (s->shift[t] = 12; bytes >> s->shift[t] >= wanted; s->shift[t]++)
            ;
        n += (int)(bytes >> s->shift[t]) + 1;
    }
    s->first_stretch[TIERS] = n;
    return n;
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

/* Notes that instruction i, or its access, depends on the earlier instruction or access `on` (-1: none). Returns 0 if memory is
 * short. */
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

/* Returns the index of a new segment g; -1: out of memory. */
static int segment_new(struct scan *s, struct segment g)
{
    int k = s->spare;
    if (k >= 0) {
        s->spare = s->segment[k].next;
    } else {
        if (!reserve((void **)&s->segment, s->n_segment, &s->cap_segment, sizeof *s->segment))
            return -1;
        k = s->n_segment++;
    }
    s->segment[k] = g;
    return k;
}

/* Puts a reader in front of a list; 0: out of memory. */
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

/* Returns the number of the stretch of a tier's arena that contains a byte. */
static int stretch_of(const struct scan *s, int tier, int64_t at)
{
    return s->first_stretch[tier] + (int)(at >> s->shift[tier]);
}

/* Moves a tier's cursor from segment k to segment `to` (-1: none), since segment k will no longer begin where it does now. */
static void move_cursor(struct scan *s, int tier, int k, int to)
{
    int *cursor = &s->cursor[stretch_of(s, tier, s->segment[k].lo)];
    *cursor = *cursor == k ? to : *cursor;
}

/* Gives the stretches that begin within bytes [lo, hi) of a tier's arena to segment k. */
static void own_stretches(struct scan *s, int tier, int64_t lo, int64_t hi, int k)
{
    int shift = s->shift[tier], end = (int)((hi - 1) >> shift);
    for (int i = (int)((lo + ((int64_t)1 << shift) - 1) >> shift); i <= end; i++)
        s->at[s->first_stretch[tier] + i] = k;
}

/* Cuts segment k in two at address `at`, which lies within the segment. Returns the first part; the second part follows in the
 * list; -1: out of memory.
 *
 * In an arena the shorter part becomes the new segment, since its stretches must be assigned anew; in a buffer, the second part. */
static int segment_split(struct scan *s, int tier, int k, int64_t at)
{
    struct segment part = s->segment[k];
    int before = s->space == HAZARD_ADDRESSES && at - part.lo < part.hi - at;
    part.readers = -1;
    for (int r = s->segment[k].readers; r >= 0; r = s->reader[r].next)
        if (!add_reader(s, &part.readers, s->reader[r].access))
            return -1;
    if (before)
        part.hi = at;
    else
        part.lo = at;
    int new = segment_new(s, part), left = before ? new : k, right = before ? k : new;
    if (new < 0)
        return -1;
    if (before)
        move_cursor(s, tier, k, new);
    s->segment[left].hi = s->segment[right].lo = at;
    s->segment[left].next = right;
    s->segment[right].previous = left;
    if (before && part.previous >= 0)
        s->segment[part.previous].next = left;
    if (!before && part.next >= 0)
        s->segment[part.next].previous = right;
    if (s->space == HAZARD_ADDRESSES)
        own_stretches(s, tier, part.lo, part.hi, new);
    return left;
}

/* Merges the segment after k, which had the same accesses, into k. */
static void segment_absorb(struct scan *s, int tier, int k)
{
    int gone = s->segment[k].next;
    struct segment *g = &s->segment[gone];
    if (s->space == HAZARD_ADDRESSES) {
        own_stretches(s, tier, g->lo, g->hi, k);
        move_cursor(s, tier, gone, -1);
    }
    forget_readers(s, &g->readers);
    s->segment[k].hi = g->hi;
    s->segment[k].next = g->next;
    if (g->next >= 0)
        s->segment[g->next].previous = k;
    g->next = s->spare;
    s->spare = gone;
}

/* Notes that access i reads segment k. For addresses only the latest reader of each lane is kept, since a wait for it implies the
 * lane's earlier ones. Returns 0 if memory is short. */
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
    for (int r = g->readers; r >= 0; r = g->readers) { /* each reader becomes spare */
        if (!depend(s, i, s->reader[r].access))
            return 0;
        g->readers = s->reader[r].next;
        s->reader[r].next = s->spare_reader;
        s->spare_reader = r;
    }
    int last = g->writer;
    g->writer = i;
    return depend(s, i, last);
}

/* Tells whether two segments of an arena have the same writer and readers. Segments of buffers count as different: their lists of
 * readers may be long and are seldom equal. */
static int were_read_alike(const struct scan *s, const struct segment *a, const struct segment *b)
{
    int r = a->readers, q = b->readers;
    if (s->space == HAZARD_BUFFERS || a->writer != b->writer)
        return 0;
    while (r >= 0 && q >= 0 && s->reader[r].access == s->reader[q].access) {
        r = s->reader[r].next;
        q = s->reader[q].next;
    }
    return r < 0 && q < 0;
}

/* Notes that access i reads or writes bytes [lo, hi), which begin in segment k. Returns the segment that begins at lo; -1: out of
 * memory. */
static int scan_bytes(struct scan *s, int i, int tier, int k, int64_t lo, int64_t hi, int write)
{
    int first = -1, before = -1;
    if (s->segment[k].lo < lo) {
        k = segment_split(s, tier, k, lo);
        if (k < 0)
            return -1;
        k = s->segment[k].next;
    }
    for (;; k = s->segment[k].next) {
        if (s->segment[k].hi > hi)
            k = segment_split(s, tier, k, hi);
        if (k < 0 || !(write ? write_segment(s, i, k) : read_segment(s, i, k)))
            return -1;
        int last = s->segment[k].hi == hi;
        first = first < 0 ? k : first;
        if (before >= 0 && (write || were_read_alike(s, &s->segment[before], &s->segment[k])))
            segment_absorb(s, tier, before);
        else
            before = k;
        if (last)
            return first;
        k = before;
    }
}

/* Number of segments above which a read is wide: it cuts no segment and is noted once. Column slices of a weight overlap almost
 * entirely, each beginning a little after the other.
 *
 * Noting thousands of slices as usual would cut the weight at each slice's ends and note each slice in every piece. */
enum { WIDE = 16 };

static int is_wide(const struct scan *s, int k, int64_t hi)
{
    for (int n = 0; n < WIDE; n++, k = s->segment[k].next)
        if (s->segment[k].hi >= hi)
            return 0;
    return 1;
}

/* Notes a wide read of bytes [lo, hi) of buffer b, the first of which is in segment k. Returns 0 if memory is short. */
static int read_wide(struct scan *s, int i, int b, int k, int64_t lo, int64_t hi)
{
    int w = s->spare_wide;
    for (; k >= 0 && s->segment[k].lo < hi; k = s->segment[k].next)
        if (!depend(s, i, s->segment[k].writer))
            return 0;
    if (w >= 0) {
        s->spare_wide = s->wide_read[w].next;
    } else {
        if (!reserve((void **)&s->wide_read, s->n_wide, &s->cap_wide, sizeof *s->wide_read))
            return 0;
        w = s->n_wide++;
    }
    s->wide_read[w] = (struct wide_read){lo, hi, i, s->wide[b]};
    s->wide[b] = w;
    return 1;
}

/* Makes a write of bytes [lo, hi) depend on the wide reads that overlap it, and keeps the unwritten rest of each such read as one
 * range. A write in the middle leaves the whole read, so that later writers depend on both. Returns 0 if memory is short. */
static int write_wide(struct scan *s, int i, int b, int64_t lo, int64_t hi)
{
    for (int *link = &s->wide[b], w; (w = *link) >= 0;) {
        struct wide_read *r = &s->wide_read[w];
        if (r->lo < hi && lo < r->hi) {
            if (!depend(s, i, r->access))
                return 0;
            if (lo <= r->lo)
                r->lo = min_i64(hi, r->hi);
            else if (hi >= r->hi)
                r->hi = lo;
        }
        if (r->lo < r->hi) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        r->next = s->spare_wide;
        s->spare_wide = w;
    }
    return 1;
}

/* Begins the list of a buffer's segments unless it has begun; 0: out of memory. */
static int cover_buffer(struct scan *s, int b)
{
    if (s->at[b] < 0)
        s->at[b] = segment_new(s, (struct segment){0, s->p->buffers[b].bytes, -1, -1, -1, -1});
    return s->at[b] >= 0;
}

/* Finds the segment of a byte, in a list that has begun. In an arena the search starts from both ends of the byte's stretch,
 * since thousands of small segments (sums of squares) may lie before large buffers. */
static int find_segment(const struct scan *s, int list, int tier, int64_t at)
{
    int k = s->cursor[list], back = -1;
    if (k < 0 || s->segment[k].lo > at)
        k = s->at[list];
    if (s->space == HAZARD_ADDRESSES && list + 1 < s->first_stretch[tier + 1])
        back = s->at[list + 1];
    for (; s->segment[k].hi <= at; k = s->segment[k].next) {
        if (back >= 0 && s->segment[back].lo <= at)
            return back;
        back = back >= 0 ? s->segment[back].previous : -1;
    }
    return k;
}

static int scan_operand(struct scan *s, int i, const struct operand *o)
{
    const struct buffer *b = &s->p->buffers[o->buffer];
    int64_t lo = (s->space == HAZARD_BUFFERS ? 0 : b->address) + o->offset;
    int list = s->space == HAZARD_BUFFERS ? o->buffer : stretch_of(s, b->tier, lo);
    if (s->space == HAZARD_BUFFERS && !cover_buffer(s, list))
        return 0;
    int k = find_segment(s, list, b->tier, lo);
    int write = (o->access & ACCESS_WRITE) != 0;
    if (s->space == HAZARD_BUFFERS && !write && is_wide(s, k, lo + o->bytes)) {
        s->cursor[list] = k;
        return read_wide(s, i, list, k, lo, lo + o->bytes);
    }
    if (s->space == HAZARD_BUFFERS && write && !write_wide(s, i, list, lo, lo + o->bytes))
        return 0;
    k = scan_bytes(s, i, b->tier, k, lo, lo + o->bytes, write);
    s->cursor[list] = k;
    return k >= 0;
}

/* Makes the segments of a buffer spare, after its last access. */
static void forget_buffer(struct scan *s, int b)
{
    for (int k = s->at[b], next; k >= 0; k = next) {
        next = s->segment[k].next;
        forget_readers(s, &s->segment[k].readers);
        s->segment[k].next = s->spare;
        s->spare = k;
    }
    for (int w = s->wide[b], next; w >= 0; w = next) {
        next = s->wide_read[w].next;
        s->wide_read[w].next = s->spare_wide;
        s->spare_wide = w;
    }
    s->at[b] = s->cursor[b] = s->wide[b] = -1;
}

/* Begins the list of each arena: one segment that nothing has accessed. 0: out of memory. */
static int cover_arenas(struct scan *s)
{
    for (int t = 0; t < TIERS; t++) {
        int k = segment_new(s, (struct segment){0, s->p->arena[t] + 1, -1, -1, -1, -1});
        if (k < 0)
            return 0;
        own_stretches(s, t, 0, s->p->arena[t] + 1, k);
    }
    return 1;
}

enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space)
{
    memset(s, 0, sizeof *s);
    s->p = p;
    s->space = space;
    s->spare = s->spare_reader = s->spare_wide = -1;
    int n = space == HAZARD_BUFFERS ? p->n_buffers : cut_arenas(s);
    s->at = sys_malloc(sizeof *s->at * (size_t)(n + 1));
    s->cursor = sys_malloc(sizeof *s->cursor * (size_t)(n + 1));
    if (!s->at || !s->cursor)
        return status_no_memory("while planning");
    for (int k = 0; k < n; k++)
        s->at[k] = s->cursor[k] = -1;
    if (space == HAZARD_ADDRESSES)
        return cover_arenas(s) ? OK : status_no_memory("while planning");
    s->seen = sys_malloc(sizeof *s->seen * (size_t)(p->n_instrs + 1));
    s->last = sys_malloc(sizeof *s->last * (size_t)(n + 1));
    s->wide = sys_malloc(sizeof *s->wide * (size_t)(n + 1));
    if (!s->seen || !s->last || !s->wide)
        return status_no_memory("while planning");
    memset(s->wide, -1, sizeof *s->wide * (size_t)(n + 1));
    for (int i = 0; i < p->n_instrs; i++) {
        s->seen[i] = -1;
        for (int k = 0; k < p->instrs[i].n_operands; k++)
            s->last[p->operands[p->instrs[i].first_operand + k].buffer] = i;
    }
    return OK;
}

/* Tells whether operand `next` begins where `o` ends and is read or written like it, so that both are one access. */
static int goes_on(const struct operand *o, const struct operand *next)
{
    return next->buffer == o->buffer && next->offset == o->offset + o->bytes &&
           (next->access & ACCESS_WRITE) == (o->access & ACCESS_WRITE);
}

int scan_instr(struct scan *s, int i)
{
    const struct instr *in = &s->p->instrs[i];
    const struct operand *o = &s->p->operands[in->first_operand];
    int access = access_of(s, i);
    memset(s->want, 0, sizeof s->want);
    for (int k = 0, next; k < in->n_operands; k = next) {
        struct operand all = o[k];
        for (next = k + 1; next < in->n_operands && goes_on(&all, &o[next]); next++)
            all.bytes += o[next].bytes;
        if (!scan_operand(s, access, &all))
            return 0;
    }
    for (int k = 0; k < in->n_operands && s->space == HAZARD_BUFFERS; k++)
        if (s->last[o[k].buffer] == i)
            forget_buffer(s, o[k].buffer);
    return 1;
}
