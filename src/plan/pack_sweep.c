/* Packing in order of time, in several ways: fast however many buffers there are. */
#include "plan/pack.h"

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

/* 0..n-1 in order of the buffers' beginnings or ends; key: room for n numbers. */
static int sort_times(const struct buffer *buffers, const int *order, int n, int ends, double *key, int *out)
{
    for (int i = 0; i < n; i++) {
        const struct buffer *b = &buffers[order ? order[i] : i];
        key[i] = ends ? b->t1 : b->t0;
        out[i] = i;
    }
    return sort_by_key(key, out, n);
}

/* Two sorted halves, merged: half the scratch of one sort. */
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

/* The best gap for so many bytes, or -1: the tightest, or the first from the end that is filled; the lowest, or if from_top the
 * highest, of equals. */
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

/* The address of so many bytes in a gap, else beyond everything. */
static int64_t take(struct gaps *g, int64_t bytes, int from_top, int tightest)
{
    int i = find_gap(g, bytes, from_top, tightest);
    if (i < 0) { /* the last gap may reach the top: grow from there */
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
        if (g->n == g->cap) {
            int cap = g->cap ? 2 * g->cap : 1024;
            struct gap *more = realloc(g->gap, sizeof *more * (size_t)cap);
            if (!more)
                return 0;
            g->gap = more;
            g->cap = cap;
        }
        memmove(&g->gap[i + 1], &g->gap[i], sizeof *g->gap * (size_t)(g->n - i));
        g->gap[i] = (struct gap){lo, hi};
        g->n++;
    }
    return 1;
}

/* How a sweep fills the arena: what lives longer than a share of all the time from the bottom, the rest from the top. */
struct filling {
    double longer; /* 0: all from the bottom */
    int tightest;
};

/* Addresses by order[]; the end of the highest, or -1 out of memory. What exceeds `most` is given up halfway. */
static int64_t sweep(const struct buffer *buffers, const int *order, const int *moment, int n, struct gaps *g, int64_t base,
                     int64_t bound, int64_t most, struct filling f, int64_t *address)
{
    double span = buffers[order[moment[2 * n - 1] / 2]].t1 - buffers[order[moment[0] / 2]].t0;
    int64_t end = base;
    g->n = 0;
    g->top = bound;
    if (bound > base && !give_back(g, base, bound))
        return -1;
    for (int i = 0; i < 2 * n && end < most; i++) {
        const struct buffer *b = &buffers[order[moment[i] / 2]];
        int64_t bytes = round_up(max_i64(b->bytes, 1), BUFFER_ALIGN), *at = &address[moment[i] / 2];
        if (moment[i] % 2) {
            *at = take(g, bytes, b->t1 - b->t0 <= f.longer * span, f.tightest);
            end = max_i64(end, *at + bytes);
        } else if (!give_back(g, *at, *at + bytes)) {
            return -1;
        }
    }
    return end;
}

int64_t pack_sweep(struct buffer *buffers, const int *order, const int *moment, int n, int64_t base, int64_t bound)
{
    static const struct filling fillings[] = {{0, 1},     {0.1, 1}, {0.01, 1},  {0.03, 0},
                                              {0.003, 1}, {0.3, 1}, {0.001, 1}, {0.01, 0}};
    struct gaps g = {0};
    int64_t *address = sys_malloc(sizeof *address * (size_t)(n + 1)), best = address ? INT64_MAX : -1;
    for (size_t k = 0; n > 0 && k < sizeof fillings / sizeof *fillings && best > bound; k++) {
        int64_t end = sweep(buffers, order, moment, n, &g, base, bound, best, fillings[k], address);
        for (int i = 0; i < n && end >= 0 && end < best; i++)
            buffers[order[i]].address = address[i];
        best = min_i64(best, end);
    }
    free(address);
    free(g.gap);
    return n > 0 ? best : base;
}
