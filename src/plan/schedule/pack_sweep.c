/* Packing in order of time, over a list of free ranges: fast for any number of buffers. */
#include "plan/schedule/pack_sweep.h"

#include "base/sort.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

struct gap {
    int64_t lo, hi;
};

/* Free ranges by address below `top`, never touching one another. */
struct gaps {
    struct gap *gap;
    int n, cap;
    int64_t top;
};

/* Fills `out` with 0..n-1 in order of the buffers' beginnings or ends; key: room for n numbers. Returns 0 if memory is short. */
static int sort_times(const struct buffer *buffers, const int *order, int n, int ends, double *key, int *out)
{
    for (int i = 0; i < n; i++) {
        const struct buffer *b = &buffers[order ? order[i] : i];
        key[i] = ends ? b->t1 : b->t0;
        out[i] = i;
    }
    return sort_by_key(key, out, n);
}

/* Merges two separately sorted halves (beginnings, ends), which takes half the scratch memory of one sort. */
int *pack_moments(const struct buffer *buffers, const int *order, int n)
{
    size_t size = (size_t)n + 1;
    double *key = sys_malloc(sizeof *key * size);
    int *begin = sys_malloc(sizeof *begin * size), *end = sys_malloc(sizeof *end * size);
    int ok = key && begin && end && sort_times(buffers, order, n, 0, key, begin) && sort_times(buffers, order, n, 1, key, end);
    free(key);
    int *moment = ok ? sys_malloc(sizeof *moment * 2 * size) : NULL;
    for (int b = 0, e = 0; moment && b + e < 2 * n;) {
        int begins =
            b < n && (e == n || buffers[order ? order[begin[b]] : begin[b]].t0 < buffers[order ? order[end[e]] : end[e]].t1);
        int at = b + e;
        moment[at] = begins ? 2 * begin[b++] + 1 : 2 * end[e++];
    }
    free(begin);
    free(end);
    return moment;
}

static int first_at_or_above(const struct gaps *g, int64_t address)
{
    int lo = 0, hi = g->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (g->gap[mid].lo < address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void remove_gap(struct gaps *g, int i)
{
    memmove(&g->gap[i], &g->gap[i + 1], sizeof *g->gap * (size_t)(g->n - i - 1));
    g->n--;
}

/* Returns the index of the gap to take `bytes` from; -1: none. tightest: the smallest gap that is large enough; if 0, the first
 * such gap from the end being filled (from_top: the top). Of equal gaps the nearest to that end is taken. */
static int find_gap(const struct gaps *g, int64_t bytes, int from_top, int tightest)
{
    int best = -1;
    for (int k = 0; k < g->n; k++) {
        int i = from_top ? g->n - 1 - k : k;
        int64_t size = g->gap[i].hi - g->gap[i].lo;
        if (size < bytes || (best >= 0 && size >= g->gap[best].hi - g->gap[best].lo))
            continue;
        best = i;
        if (!tightest || size == bytes)
            break;
    }
    return best;
}

/* Takes `bytes` from a gap, or above everything; returns their address. */
static int64_t take(struct gaps *g, int64_t bytes, int from_top, int tightest)
{
    int i = find_gap(g, bytes, from_top, tightest);
    if (i < 0) { /* the last gap may reach the top: the arena then grows from that gap's start */
        int last = g->n - 1;
        int64_t at = last >= 0 && g->gap[last].hi == g->top ? g->gap[last].lo : g->top;
        if (at < g->top)
            g->n--;
        g->top = at + bytes;
        return at;
    }
    int64_t at = from_top ? g->gap[i].hi - bytes : g->gap[i].lo;
    if (from_top)
        g->gap[i].hi = at;
    else
        g->gap[i].lo = at + bytes;
    if (g->gap[i].lo == g->gap[i].hi)
        remove_gap(g, i);
    return at;
}

/* Makes room for one more gap; 0: out of memory. */
static int reserve_gap(struct gaps *g)
{
    if (g->n < g->cap)
        return 1;
    int cap = g->cap ? 2 * g->cap : 1024;
    struct gap *more = sys_realloc(g->gap, sizeof *more * (size_t)cap);
    if (!more)
        return 0;
    g->gap = more;
    g->cap = cap;
    return 1;
}

static int append_gap(struct gaps *g, int64_t lo, int64_t hi)
{
    if (!reserve_gap(g))
        return 0;
    g->gap[g->n++] = (struct gap){lo, hi};
    return 1;
}

static int give_back(struct gaps *g, int64_t lo, int64_t hi)
{
    int i = first_at_or_above(g, lo);
    int below = i > 0 && g->gap[i - 1].hi == lo, above = i < g->n && g->gap[i].lo == hi;
    if (below && above) {
        g->gap[i - 1].hi = g->gap[i].hi;
        remove_gap(g, i);
    } else if (below) {
        g->gap[i - 1].hi = hi;
    } else if (above) {
        g->gap[i].lo = lo;
    } else {
        if (!reserve_gap(g))
            return 0;
        memmove(&g->gap[i + 1], &g->gap[i], sizeof *g->gap * (size_t)(g->n - i));
        g->gap[i] = (struct gap){lo, hi};
        g->n++;
    }
    return 1;
}

/* Takes [lo, hi), which is free or beyond the top, out of the gaps; 0: out of memory. */
static int carve(struct gaps *g, int64_t lo, int64_t hi)
{
    if (hi > g->top) {
        if (!give_back(g, g->top, hi))
            return 0;
        g->top = hi;
    }
    int i = first_at_or_above(g, lo + 1) - 1;
    int64_t end = g->gap[i].hi;
    g->gap[i].hi = lo;
    if (g->gap[i].lo == lo)
        remove_gap(g, i);
    return end == hi || give_back(g, hi, end);
}

/* A way to fill the arena: buffers that live longer than the share `longer` of the whole time go to the bottom, others to the
 * top. */
struct filling {
    double longer; /* 0: all from the bottom */
    int tightest;
};

/* A sweep over the buffers order[i] in order of time, around buffers that already have their places. */
struct sweep {
    const struct buffer *buffers;
    const int *order, *moment;
    int n;
    int64_t base, bound;
    const int *placed;        /* buffers that have their places, sorted by beginning */
    int n_placed, next;       /* next: the first of them that has not begun */
    unsigned char *is_placed; /* NULL: no buffer is placed */
    int64_t *address;
    struct gaps g;
    struct gaps ahead;  /* ranges that placed buffers take while the present one lives, by address; they may overlap */
    struct gaps within; /* gaps without the ranges ahead */
    int64_t work;       /* number of ranges ahead, added up over all buffers so far */
};

/* Most ranges looked at in one sweep, which then ends: long-lived small buffers beside many placed ones take too long. */
#define MOST_WORK 4000000

static const struct buffer *nth(const struct sweep *s, int i)
{
    return &s->buffers[s->order[i]];
}

static int by_lo(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;
    return x->lo != y->lo ? (x->lo < y->lo ? -1 : 1) : x->hi < y->hi ? -1 : x->hi > y->hi;
}

/* Fills s->ahead with the ranges that placed buffers take while b lives; 0: out of memory. */
static int look_ahead(struct sweep *s, const struct buffer *b)
{
    s->ahead.n = 0;
    while (s->next < s->n_placed && nth(s, s->placed[s->next])->t0 < b->t0)
        s->next++;
    for (int k = s->next; k < s->n_placed && nth(s, s->placed[k])->t0 < b->t1; k++) {
        int64_t at = s->address[s->placed[k]];
        if (!append_gap(&s->ahead, at, at + pack_padded(nth(s, s->placed[k]))))
            return 0;
    }
    s->work += s->ahead.n;
    if (s->ahead.n > 1)
        qsort(s->ahead.gap, (size_t)s->ahead.n, sizeof *s->ahead.gap, by_lo);
    return 1;
}

/* Fills s->within with the gaps of at least `bytes` that the ranges ahead leave; 0: out of memory. */
static int cut_gaps(struct sweep *s, int64_t bytes)
{
    int64_t at = s->base;
    int k = 0;
    s->within.n = 0;
    for (int i = 0; i < s->g.n; i++) {
        int64_t end = s->g.gap[i].hi;
        at = max_i64(at, s->g.gap[i].lo);
        for (; k < s->ahead.n && s->ahead.gap[k].lo < end; k++) {
            if (s->ahead.gap[k].lo - at >= bytes && !append_gap(&s->within, at, s->ahead.gap[k].lo))
                return 0;
            at = max_i64(at, s->ahead.gap[k].hi);
        }
        if (end - at >= bytes && !append_gap(&s->within, at, end))
            return 0;
    }
    return 1;
}

/* Takes `bytes` from a gap that the ranges ahead leave, or above them; returns their address; -1: out of memory. */
static int64_t take_around(struct sweep *s, int64_t bytes, int from_top, int tightest)
{
    if (!cut_gaps(s, bytes))
        return -1;
    int i = find_gap(&s->within, bytes, from_top, tightest);
    int last = s->g.n - 1;
    int64_t at = last >= 0 && s->g.gap[last].hi == s->g.top ? s->g.gap[last].lo : s->g.top;
    if (i >= 0)
        at = from_top ? s->within.gap[i].hi - bytes : s->within.gap[i].lo;
    for (int k = 0; k < s->ahead.n && i < 0; k++)
        at = max_i64(at, s->ahead.gap[k].hi);
    return carve(&s->g, at, at + bytes) ? at : -1;
}

/* Lets buffer order[i] begin. Returns its address; -1: out of memory. */
static int64_t begin(struct sweep *s, int i, struct filling f, double span)
{
    const struct buffer *b = nth(s, i);
    int from_top = b->t1 - b->t0 <= f.longer * span;
    if (s->is_placed && s->is_placed[i])
        return carve(&s->g, s->address[i], s->address[i] + pack_padded(b)) ? s->address[i] : -1;
    if (!look_ahead(s, b))
        return -1;
    return s->ahead.n > 0 ? take_around(s, pack_padded(b), from_top, f.tightest)
                          : take(&s->g, pack_padded(b), from_top, f.tightest);
}

/* Sets s->address for all buffers. Returns the end of the highest buffer; -1: out of memory. Stops early once that end exceeds
 * `most`. */
static int64_t sweep(struct sweep *s, int64_t most, struct filling f)
{
    double span = nth(s, s->moment[2 * s->n - 1] / 2)->t1 - nth(s, s->moment[0] / 2)->t0;
    int64_t end = s->base;
    for (int k = 0; k < s->n_placed; k++)
        end = max_i64(end, s->address[s->placed[k]] + pack_padded(nth(s, s->placed[k])));
    s->g.n = s->next = 0;
    s->work = 0;
    s->g.top = max_i64(s->bound, end);
    if (s->g.top > s->base && !give_back(&s->g, s->base, s->g.top))
        return -1;
    for (int i = 0; i < 2 * s->n && end < most; i++) {
        int k = s->moment[i] / 2;
        int64_t bytes = pack_padded(nth(s, k));
        if (s->moment[i] % 2) {
            s->address[k] = begin(s, k, f, span);
            if (s->address[k] < 0)
                return -1;
            end = s->work > MOST_WORK ? INT64_MAX : max_i64(end, s->address[k] + bytes);
        } else if (!give_back(&s->g, s->address[k], s->address[k] + bytes)) {
            return -1;
        }
    }
    return end;
}

static void keep_addresses(const struct sweep *s, struct buffer *buffers)
{
    for (int i = 0; i < s->n; i++)
        buffers[s->order[i]].address = s->address[i];
}

static void sweep_free(struct sweep *s)
{
    free(s->address);
    free(s->is_placed);
    free(s->g.gap);
    free(s->ahead.gap);
    free(s->within.gap);
}

int64_t pack_sweep(struct buffer *buffers, const int *order, const int *moment, int n, int64_t base, int64_t bound,
                   int64_t enough)
{
    static const struct filling fillings[] = {{0, 1},     {0.1, 1}, {0.01, 1},  {0.03, 0},
                                              {0.003, 1}, {0.3, 1}, {0.001, 1}, {0.01, 0}};
    struct sweep s = {.buffers = buffers, .order = order, .moment = moment, .n = n, .base = base, .bound = bound};
    s.address = sys_malloc(sizeof *s.address * (size_t)(n + 1));
    int64_t best = s.address ? INT64_MAX : -1;
    for (size_t k = 0; n > 0 && k < sizeof fillings / sizeof *fillings && best > enough; k++) {
        int64_t end = sweep(&s, best, fillings[k]);
        if (end >= 0 && end < best)
            keep_addresses(&s, buffers);
        best = min_i64(best, end);
    }
    sweep_free(&s);
    return n > 0 ? best : base;
}

/* Sorts the placed buffers by their beginnings; 0: out of memory. */
static int sort_placed(const struct sweep *s, int *placed, int n)
{
    double *key = sys_malloc(sizeof *key * ((size_t)s->n + 1));
    for (int i = 0; key && i < n; i++)
        key[placed[i]] = nth(s, placed[i])->t0;
    int ok = key && sort_by_key(key, placed, n);
    free(key);
    return ok;
}

int64_t pack_sweep_around(struct buffer *buffers, const int *order, const int *moment, int n, int64_t base, int64_t bound,
                          int64_t most, int *placed, const int64_t *address, int n_placed)
{
    static const struct filling fillings[] = {{0, 1}, {0.001, 1}};
    struct sweep s = {.buffers = buffers, .order = order, .moment = moment, .n = n, .base = base, .bound = bound};
    s.address = sys_malloc(sizeof *s.address * (size_t)(n + 1));
    s.is_placed = sys_calloc((size_t)n + 1, 1);
    int64_t best = s.address && s.is_placed ? most : -1;
    for (int i = 0; best >= 0 && i < n_placed; i++) {
        s.is_placed[placed[i]] = 1;
        s.address[placed[i]] = address[i];
    }
    s.placed = placed;
    s.n_placed = n_placed;
    if (best >= 0 && !sort_placed(&s, placed, n_placed))
        best = -1;
    for (size_t k = 0; k < sizeof fillings / sizeof *fillings && best >= 0; k++) {
        int64_t end = sweep(&s, best, fillings[k]);
        if (end >= 0 && end < best)
            keep_addresses(&s, buffers);
        best = min_i64(best, end);
    }
    sweep_free(&s);
    return best;
}
