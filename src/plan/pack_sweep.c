/* Packing in order of time: for tiers with so many buffers that looking at all contemporaries of each is too slow. */
#include "plan/pack.h"

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

struct moment {
    double t;
    int buffer; /* ends first at equal times */
    int begins;
};

static int by_moment(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins - y->begins;
    return x->buffer - y->buffer;
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

/* The tightest gap that is large enough, the lowest of equal ones; else beyond everything. */
static int64_t take(struct gaps *g, int64_t bytes)
{
    int best = -1;
    for (int i = 0; i < g->n; i++) {
        int64_t size = g->gap[i].hi - g->gap[i].lo;
        if (size >= bytes && (best < 0 || size < g->gap[best].hi - g->gap[best].lo))
            best = i;
    }
    if (best < 0) { /* the last gap may reach the top: grow from there */
        int last = g->n - 1;
        int64_t at = last >= 0 && g->gap[last].hi == g->top ? g->gap[last].lo : g->top;
        if (at < g->top)
            g->n--;
        g->top = at + bytes;
        return at;
    }
    int64_t at = g->gap[best].lo;
    g->gap[best].lo += bytes;
    if (g->gap[best].lo == g->gap[best].hi)
        remove_gap(g, best);
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

int64_t pack_sweep(struct buffer *buffers, const int *order, int n, int64_t base)
{
    struct gaps g = {.top = base};
    struct moment *m = sys_malloc(sizeof *m * (size_t)(2 * n + 1));
    int64_t most = base;
    if (!m)
        return -1;
    for (int i = 0; i < n; i++) {
        m[2 * i] = (struct moment){buffers[order[i]].t0, order[i], 1};
        m[2 * i + 1] = (struct moment){buffers[order[i]].t1, order[i], 0};
    }
    qsort(m, (size_t)(2 * n), sizeof *m, by_moment);
    for (int i = 0; i < 2 * n && most >= 0; i++) {
        struct buffer *b = &buffers[m[i].buffer];
        int64_t bytes = round_up(max_i64(b->bytes, 1), BUFFER_ALIGN);
        if (m[i].begins)
            b->address = take(&g, bytes);
        else if (!give_back(&g, b->address, b->address + bytes))
            most = -1;
        if (most >= 0)
            most = max_i64(most, g.top);
    }
    free(m);
    free(g.gap);
    return most;
}
