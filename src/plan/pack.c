/* First-fit and best-fit in several greedy orders, over a list of what is placed in order of address. */
#include "plan/pack.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

#define MANY 1500 /* buffers beyond which only the best order is tried: the others took 6 times as long for under 2% */

/* A buffer that has its place; kept in order of address. */
struct placed {
    int64_t lo, hi;
    double t0, t1;
};

struct packer {
    struct program *p;
    int *order; /* transient buffers of the tier */
    int n;
    struct placed *placed;
    int64_t *address;
};

static int64_t padded(const struct buffer *b)
{
    return round_up(b->bytes > 0 ? b->bytes : 1, BUFFER_ALIGN);
}

static struct buffer *sort_buffers;

static int by_size(const void *a, const void *b)
{
    const struct buffer *x = &sort_buffers[*(const int *)a], *y = &sort_buffers[*(const int *)b];
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->t0 != y->t0)
        return x->t0 < y->t0 ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

static int by_time(const void *a, const void *b)
{
    const struct buffer *x = &sort_buffers[*(const int *)a], *y = &sort_buffers[*(const int *)b];
    if (x->t0 != y->t0)
        return x->t0 < y->t0 ? -1 : 1;
    return by_size(a, b);
}

static int by_area(const void *a, const void *b)
{
    const struct buffer *x = &sort_buffers[*(const int *)a], *y = &sort_buffers[*(const int *)b];
    double ax = (double)x->bytes * (x->t1 - x->t0), ay = (double)y->bytes * (y->t1 - y->t0);
    if (ax != ay)
        return ax > ay ? -1 : 1;
    return by_size(a, b);
}

/* The lowest (or tightest) gap among those placed that live at the same time. */
static int64_t find_place(const struct packer *k, int n_placed, const struct buffer *b, int64_t base, int best_fit)
{
    int64_t need = padded(b), at = base, found = -1, found_size = 0;
    for (int i = 0; i < n_placed; i++) {
        const struct placed *o = &k->placed[i];
        if (o->t0 >= b->t1 || b->t0 >= o->t1)
            continue;
        if (o->lo - at >= need && (found < 0 || o->lo - at < found_size)) {
            found = at;
            found_size = o->lo - at;
            if (!best_fit)
                break;
        }
        if (o->hi > at)
            at = o->hi;
    }
    return found >= 0 ? found : at;
}

/* Places all buffers in the current order; returns the arena size. */
static int64_t place_all(struct packer *k, int64_t base, int best_fit)
{
    int64_t top = base;
    for (int i = 0; i < k->n; i++) {
        const struct buffer *b = &k->p->buffers[k->order[i]];
        int64_t lo = find_place(k, i, b, base, best_fit);
        int at = i;
        while (at > 0 && k->placed[at - 1].lo > lo)
            at--;
        memmove(&k->placed[at + 1], &k->placed[at], sizeof *k->placed * (size_t)(i - at));
        k->placed[at] = (struct placed){lo, lo + padded(b), b->t0, b->t1};
        k->address[i] = lo;
        if (k->placed[at].hi > top)
            top = k->placed[at].hi;
    }
    return top;
}

struct event {
    double t;
    int64_t bytes;
};

/* By time; at the same moment what frees comes first. */
static int event_compare(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Persistent bytes plus the largest sum of simultaneously live transient bytes. */
static int64_t max_live(struct packer *k, int64_t base)
{
    struct buffer *buffers = k->p->buffers;
    int64_t live = 0, best = 0;
    struct event *e = sys_malloc(sizeof *e * (size_t)(2 * k->n + 1));
    if (!e)
        return -1;
    for (int i = 0; i < k->n; i++) {
        const struct buffer *b = &buffers[k->order[i]];
        e[2 * i] = (struct event){b->t0, padded(b)};
        e[2 * i + 1] = (struct event){b->t1, -padded(b)};
    }
    qsort(e, (size_t)(2 * k->n), sizeof *e, event_compare);
    for (int i = 0; i < 2 * k->n; i++) {
        live += e[i].bytes;
        if (live > best)
            best = live;
    }
    free(e);
    return base + best;
}

enum status pack_tier(struct program *p, enum tier tier, int64_t base)
{
    struct packer k = {.p = p};
    int64_t best = -1, *best_address = NULL;
    int *best_order = NULL;
    enum status st = OK;
    size_t cap = (size_t)p->n_buffers + 1;
    k.order = sys_malloc(sizeof(int) * cap);
    k.placed = sys_malloc(sizeof *k.placed * cap);
    k.address = sys_malloc(sizeof(int64_t) * cap);
    best_address = sys_malloc(sizeof(int64_t) * cap);
    best_order = sys_malloc(sizeof(int) * cap);
    if (!k.order || !k.placed || !k.address || !best_address || !best_order) {
        st = status_fail(ERR_NOMEM, "out of memory while planning");
        goto out;
    }
    for (int b = p->n_persistent; b < p->n_buffers; b++)
        if (p->buffers[b].tier == tier && p->buffers[b].t1 > p->buffers[b].t0)
            k.order[k.n++] = b;
        else if (p->buffers[b].tier == tier)
            p->buffers[b].address = 0; /* never used */
    p->lower_bound[tier] = max_live(&k, base);
    if (p->lower_bound[tier] < 0) {
        st = status_fail(ERR_NOMEM, "out of memory while planning");
        goto out;
    }
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_time};
    for (int attempt = 0; attempt < (k.n > MANY ? 1 : 6) && best != p->lower_bound[tier]; attempt++) {
        sort_buffers = p->buffers;
        qsort(k.order, (size_t)k.n, sizeof *k.order, orders[attempt / 2]);
        int64_t top = place_all(&k, base, k.n > MANY || attempt % 2 == 0);
        if (best < 0 || top < best) {
            best = top;
            memcpy(best_address, k.address, sizeof *best_address * (size_t)k.n);
            memcpy(best_order, k.order, sizeof *best_order * (size_t)k.n);
        }
    }
    for (int i = 0; i < k.n; i++)
        p->buffers[best_order[i]].address = best_address[i];
    p->arena[tier] = k.n > 0 ? best : base;
out:
    free(k.order);
    free(k.placed);
    free(k.address);
    free(best_address);
    free(best_order);
    return st;
}
