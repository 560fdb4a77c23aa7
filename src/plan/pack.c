/* First-fit and best-fit by decreasing size over a time-bucketed index of what is already placed. */
#include "plan/pack.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 512

struct span {
    int64_t lo, hi;
};

struct packer {
    struct program *p;
    int *order; /* transient buffers of the tier */
    int n;
    double t_min, t_scale;
    int *bucket_head; /* BUCKETS lists of placed buffers */
    int *node_buffer, *node_next;
    int n_nodes, cap_nodes;
    struct span *gaps;
    int *stamp;
    int64_t *address;
};

static int bucket_of(const struct packer *k, double t)
{
    int b = (int)((t - k->t_min) * k->t_scale);
    return b < 0 ? 0 : b >= BUCKETS ? BUCKETS - 1 : b;
}

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

static int span_compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static int node_add(struct packer *k, int bucket, int buffer)
{
    if (k->n_nodes == k->cap_nodes) {
        int cap = k->cap_nodes ? 2 * k->cap_nodes : 4096;
        int *b = realloc(k->node_buffer, sizeof *b * (size_t)cap);
        if (b)
            k->node_buffer = b;
        int *n = realloc(k->node_next, sizeof *n * (size_t)cap);
        if (n)
            k->node_next = n;
        if (!b || !n)
            return 0;
        k->cap_nodes = cap;
    }
    k->node_buffer[k->n_nodes] = buffer;
    k->node_next[k->n_nodes] = k->bucket_head[bucket];
    k->bucket_head[bucket] = k->n_nodes++;
    return 1;
}

/* Places all buffers in the current order; returns the arena size, or -1 out of memory. */
static int64_t place_all(struct packer *k, int64_t base, int best_fit)
{
    struct buffer *buffers = k->p->buffers;
    int64_t top = base;
    k->n_nodes = 0;
    for (int b = 0; b < BUCKETS; b++)
        k->bucket_head[b] = -1;
    for (int i = 0; i < k->n; i++)
        k->stamp[i] = -1;
    for (int i = 0; i < k->n; i++) {
        const struct buffer *b = &buffers[k->order[i]];
        int64_t need = padded(b), at = base, found = -1, found_size = 0;
        int n_gaps = 0, first = bucket_of(k, b->t0), last = bucket_of(k, b->t1);
        for (int q = first; q <= last; q++)
            for (int node = k->bucket_head[q]; node >= 0; node = k->node_next[node]) {
                int j = k->node_buffer[node];
                const struct buffer *o = &buffers[k->order[j]];
                if (k->stamp[j] == i || o->t0 >= b->t1 || b->t0 >= o->t1)
                    continue;
                k->stamp[j] = i;
                k->gaps[n_gaps++] = (struct span){k->address[j], k->address[j] + padded(o)};
            }
        qsort(k->gaps, (size_t)n_gaps, sizeof *k->gaps, span_compare);
        for (int g = 0; g < n_gaps; g++) {
            int64_t room = k->gaps[g].lo - at;
            if (room >= need && (found < 0 || room < found_size)) {
                found = at;
                found_size = room;
                if (!best_fit)
                    break;
            }
            if (k->gaps[g].hi > at)
                at = k->gaps[g].hi;
        }
        k->address[i] = found >= 0 ? found : at;
        if (k->address[i] + need > top)
            top = k->address[i] + need;
        for (int q = first; q <= last; q++)
            if (!node_add(k, q, i))
                return -1;
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
    k.stamp = sys_malloc(sizeof(int) * cap);
    k.gaps = sys_malloc(sizeof(struct span) * cap);
    k.address = sys_malloc(sizeof(int64_t) * cap);
    k.bucket_head = sys_malloc(sizeof(int) * BUCKETS);
    best_address = sys_malloc(sizeof(int64_t) * cap);
    best_order = sys_malloc(sizeof(int) * cap);
    if (!k.order || !k.stamp || !k.gaps || !k.address || !k.bucket_head || !best_address || !best_order) {
        st = status_fail(ERR_NOMEM, "out of memory while planning");
        goto out;
    }
    double t_max = 0;
    for (int b = p->n_persistent; b < p->n_buffers; b++)
        if (p->buffers[b].tier == tier) {
            if (k.n == 0 || p->buffers[b].t0 < k.t_min)
                k.t_min = p->buffers[b].t0;
            if (p->buffers[b].t1 > t_max)
                t_max = p->buffers[b].t1;
            k.order[k.n++] = b;
        }
    k.t_scale = t_max > k.t_min ? BUCKETS / (t_max - k.t_min) : 0;
    p->lower_bound[tier] = max_live(&k, base);
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_time};
    for (int o = 0; o < 3 && k.n > 0; o++) {
        sort_buffers = p->buffers;
        qsort(k.order, (size_t)k.n, sizeof *k.order, orders[o]);
        for (int fit = 0; fit < 2; fit++) {
            int64_t top = place_all(&k, base, fit);
            if (top < 0 || p->lower_bound[tier] < 0) {
                st = status_fail(ERR_NOMEM, "out of memory while planning");
                goto out;
            }
            if (best < 0 || top < best) {
                best = top;
                memcpy(best_address, k.address, sizeof *best_address * (size_t)k.n);
                memcpy(best_order, k.order, sizeof *best_order * (size_t)k.n);
            }
            if (best == p->lower_bound[tier])
                break;
        }
        if (best == p->lower_bound[tier])
            break;
    }
    for (int i = 0; i < k.n; i++)
        p->buffers[best_order[i]].address = best_address[i];
    p->arena[tier] = k.n > 0 ? best : base;
out:
    free(k.order);
    free(k.stamp);
    free(k.gaps);
    free(k.address);
    free(k.bucket_head);
    free(k.node_buffer);
    free(k.node_next);
    free(best_address);
    free(best_order);
    return st;
}
