/* First fit and best fit over an index by time of the placed buffers. */
#include "plan/schedule/pack_greedy.h"

#include "base/sys.h"
#include "plan/schedule/pack_sweep.h"

#include <stdlib.h>
#include <string.h>

#define LEAVES 4096 /* leaves of the time index */

/* Bytes of a placed buffer, without its lifetime. */
struct span {
    int64_t lo, hi;
};

/* An index for few buffers: the moments at which each buffer begins and ends, and the placed buffers by address. */
struct few {
    int16_t *begins, *ends; /* moments by the buffer's number in the program */
    int16_t first[PACKER_FEW], last[PACKER_FEW];
    struct span span[PACKER_FEW];
    uint8_t meets[PACKER_FEW + sizeof(uint64_t)];
};

/* Placed buffers, found by time: a segment tree over LEAVES slices of time. A buffer hangs on the few nodes that make up its
 * lifetime, so that a short-lived one meets its contemporaries without looking at the rest. */
struct time_index {
    double t_min, scale;
    int head[2 * LEAVES]; /* lists of entries; -1 ends them */
    int *next, *item;
    int n, cap;
};

static const struct buffer *buffer_at(const struct buffer *buffers, const void *index)
{
    return &buffers[*(const int *)index];
}

static int by_size(const void *a, const void *b, void *buffers)
{
    const struct buffer *x = buffer_at(buffers, a), *y = buffer_at(buffers, b);
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->t0 != y->t0)
        return x->t0 < y->t0 ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

static int by_time(const void *a, const void *b, void *buffers)
{
    const struct buffer *x = buffer_at(buffers, a), *y = buffer_at(buffers, b);
    if (x->t0 != y->t0)
        return x->t0 < y->t0 ? -1 : 1;
    return by_size(a, b, buffers);
}

static int by_area(const void *a, const void *b, void *buffers)
{
    const struct buffer *x = buffer_at(buffers, a), *y = buffer_at(buffers, b);
    double ax = (double)x->bytes * (x->t1 - x->t0), ay = (double)y->bytes * (y->t1 - y->t0);
    if (ax != ay)
        return ax > ay ? -1 : 1;
    return by_size(a, b, buffers);
}

static int leaf_of(const struct time_index *x, double t)
{
    int leaf = (int)((t - x->t_min) * x->scale);
    return leaf < 0 ? 0 : leaf >= LEAVES ? LEAVES - 1 : leaf;
}

static int index_add(struct time_index *x, int node, int item)
{
    if (x->n == x->cap) {
        int cap = x->cap ? 2 * x->cap : 8192;
        int *next = sys_realloc(x->next, sizeof *next * (size_t)cap);
        if (next)
            x->next = next;
        int *items = next ? sys_realloc(x->item, sizeof *items * (size_t)cap) : NULL;
        if (!items)
            return 0;
        x->item = items;
        x->cap = cap;
    }
    x->item[x->n] = item;
    x->next[x->n] = x->head[node];
    x->head[node] = x->n++;
    return 1;
}

static int index_insert(struct time_index *x, const struct placed *o, int item)
{
    for (int l = leaf_of(x, o->t0) + LEAVES, r = leaf_of(x, o->t1) + LEAVES + 1; l < r; l /= 2, r /= 2) {
        if ((l & 1) && !index_add(x, l++, item))
            return 0;
        if ((r & 1) && !index_add(x, --r, item))
            return 0;
    }
    return 1;
}

static void gather_node(struct packer *k, int node, const struct buffer *b, int self, int *n)
{
    const struct time_index *x = k->index;
    for (int e = x->head[node]; e >= 0; e = x->next[e]) {
        const struct placed *o = &k->placed[x->item[e]];
        if (k->seen[x->item[e]] == self || o->t0 >= b->t1 || b->t0 >= o->t1)
            continue;
        k->seen[x->item[e]] = self;
        k->near[(*n)++] = (struct span){o->lo, o->hi};
    }
}

/* Fills k->near with the places of all contemporaries of b, from the nodes within its lifetime and their ancestors. Returns their
 * number. */
static int gather(struct packer *k, const struct buffer *b, int self)
{
    int n = 0, l = leaf_of(k->index, b->t0) + LEAVES, r = leaf_of(k->index, b->t1) + LEAVES;
    for (; l >= 1; l /= 2, r /= 2) /* level by level: nodes l..r meet the lifetime */
        for (int node = l; node <= r; node++)
            gather_node(k, node, b, self, &n);
    return n;
}

/* Sorts by address: quicksort down to runs of SHORT, then insertion. This runs once per buffer; with qsort planning takes up to a
 * sixth longer. The order of equal addresses does not matter to the places found, since at most one of them lives at a time. */
static void sort_spans(struct span *x, int n)
{
    enum { SHORT = 24 };
    while (n > SHORT) {
        int64_t a = x[0].lo, b = x[n / 2].lo, c = x[n - 1].lo, pivot = max_i64(min_i64(a, b), min_i64(max_i64(a, b), c));
        int i = 0, j = n - 1;
        for (;; i++, j--) {
            while (x[i].lo < pivot)
                i++;
            while (x[j].lo > pivot)
                j--;
            if (i >= j)
                break;
            struct span other = x[i];
            x[i] = x[j];
            x[j] = other;
        }
        int left = i < n - i; /* the shorter part */
        sort_spans(left ? x : x + i, left ? i : n - i);
        x += left ? i : 0;
        n = left ? n - i : i;
    }
    for (int i = 1; i < n; i++) {
        struct span one = x[i];
        int at = i;
        for (; at > 0 && x[at - 1].lo > one.lo; at--)
            x[at] = x[at - 1];
        x[at] = one;
    }
}

/* Sorts the n places in near by address. If nearly everything is near (saved activations on nvme), a walk through all placed
 * buffers is faster than sorting. */
static void sort_near(struct packer *k, int n, int n_placed, int self)
{
    if ((int64_t)n * 12 < n_placed) {
        sort_spans(k->near, n);
        return;
    }
    n = 0;
    for (int i = 0; i < n_placed; i++)
        if (k->seen[k->sorted[i]] == self)
            k->near[n++] = (struct span){k->placed[k->sorted[i]].lo, k->placed[k->sorted[i]].hi};
}

/* Enters the newly placed buffer i into k->sorted. */
static void insert_sorted(struct packer *k, int i)
{
    int lo = 0, hi = i;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (k->placed[k->sorted[mid]].lo <= k->placed[i].lo)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(&k->sorted[lo + 1], &k->sorted[lo], sizeof *k->sorted * (size_t)(i - lo));
    k->sorted[lo] = i;
}

/* A search for a gap in ascending addresses, with the tightest or the lowest gap so far. */
struct gap {
    int64_t need, at, found, size;
};

/* Moves the search past one more contemporary buffer, and considers the gap below that buffer. */
static void gap_beside(struct gap *g, const struct span *o)
{
    if (o->lo - g->at >= g->need && (g->found < 0 || o->lo - g->at < g->size)) {
        g->found = g->at;
        g->size = o->lo - g->at;
    }
    g->at = max_i64(g->at, o->hi);
}

/* Returns the address of the lowest (best_fit: the tightest) gap of `need` bytes among the n places in `near`; if there is no
 * gap, the address above all of them. */
static int64_t find_place(const struct packer *k, int n, int64_t need, int64_t base, int best_fit)
{
    struct gap g = {need, base, -1, 0};
    for (int i = 0; i < n && (best_fit || g.found < 0); i++)
        gap_beside(&g, &k->near[i]);
    return g.found >= 0 ? g.found : g.at;
}

/* Returns the address for a buffer that lives from moment first to last, among the n placed ones in k->few. */
static int64_t find_among_few(const struct packer *k, int n, int16_t first, int16_t last, int64_t need, int64_t base,
                              int best_fit)
{
    const struct few *f = k->few;
    struct gap g = {need, base, -1, 0};
    uint64_t hits;
    for (int i = 0; i < n; i++) /* compiles to vector instructions */
        k->few->meets[i] = (uint8_t)((f->first[i] < last) & (first < f->last[i]));
    memset(&k->few->meets[n], 0, sizeof hits);
    for (int i = 0; i < n && (best_fit || g.found < 0); i += (int)sizeof hits) {
        memcpy(&hits, &f->meets[i], sizeof hits);
        for (; hits && (best_fit || g.found < 0); hits &= hits - 1)
            gap_beside(&g, &f->span[i + __builtin_ctzll(hits) / 8]);
    }
    return g.found >= 0 ? g.found : g.at;
}

/* Places few buffers: it looks at all placed ones in the order of addresses, which is faster than an index of so few. */
static int64_t place_few(struct packer *k, int64_t base, int best_fit, int64_t most)
{
    struct few *f = k->few;
    int64_t top = base;
    for (int i = 0; i < k->n && top < most; i++) {
        const int b = k->order[i];
        const struct buffer *buffer = &k->p->buffers[b];
        const int64_t need = pack_padded(buffer), lo = find_among_few(k, i, f->begins[b], f->ends[b], need, base, best_fit);
        int at = 0, above = i;
        while (at < above) {
            int mid = (at + above) / 2;
            if (f->span[mid].lo <= lo)
                at = mid + 1;
            else
                above = mid;
        }
        const size_t behind = (size_t)(i - at);
        memmove(&f->span[at + 1], &f->span[at], sizeof *f->span * behind);
        memmove(&f->first[at + 1], &f->first[at], sizeof *f->first * behind);
        memmove(&f->last[at + 1], &f->last[at], sizeof *f->last * behind);
        f->span[at] = (struct span){lo, lo + need};
        f->first[at] = f->begins[b];
        f->last[at] = f->ends[b];
        k->placed[i] = (struct placed){lo, lo + need, buffer->t0, buffer->t1};
        top = max_i64(top, lo + need);
    }
    return top;
}

int64_t packer_place(struct packer *k, int64_t base, int best_fit, int64_t most)
{
    int64_t top = base;
    if (k->few)
        return place_few(k, base, best_fit, most);
    k->index->n = 0;
    for (int i = 0; i < 2 * LEAVES; i++)
        k->index->head[i] = -1;
    for (int i = 0; i < k->n; i++)
        k->seen[i] = -1;
    for (int i = 0; i < k->n && top < most; i++) {
        const struct buffer *b = &k->p->buffers[k->order[i]];
        int n = gather(k, b, i);
        sort_near(k, n, i, i);
        int64_t lo = find_place(k, n, pack_padded(b), base, best_fit);
        k->placed[i] = (struct placed){lo, lo + pack_padded(b), b->t0, b->t1};
        insert_sorted(k, i);
        if (!index_insert(k->index, &k->placed[i], i))
            return -1;
        top = max_i64(top, k->placed[i].hi);
    }
    return top;
}

void packer_sort(struct packer *k, enum packing_order by)
{
    static int (*const orders[])(const void *, const void *,
                                 void *) = {[BY_SIZE] = by_size, [BY_AREA] = by_area, [BY_TIME] = by_time};
    qsort_r(k->order, (size_t)k->n, sizeof *k->order, orders[by], k->p->buffers);
}

enum status packer_create(struct program *p, enum tier tier, struct packer *out)
{
    size_t cap = (size_t)p->n_buffers + 1;
    struct packer k = {.p = p};
    k.order = sys_malloc(sizeof(int) * cap);
    k.placed = sys_malloc(sizeof *k.placed * cap);
    k.near = sys_malloc(sizeof *k.near * cap);
    k.seen = sys_malloc(sizeof(int) * cap);
    k.sorted = sys_malloc(sizeof(int) * cap);
    k.index = sys_calloc(1, sizeof *k.index);
    *out = k;
    if (!k.order || !k.placed || !k.near || !k.seen || !k.sorted || !k.index)
        return status_no_memory("while planning");
    double t_max = -1e300;
    k.index->t_min = 1e300;
    for (int b = p->n_persistent; b < p->n_buffers; b++) {
        struct buffer *buf = &p->buffers[b];
        if (buf->tier != tier)
            continue;
        buf->address = 0; /* stays 0 if the buffer is never used */
        if (buf->t1 <= buf->t0)
            continue;
        k.order[out->n++] = b;
        t_max = buf->t1 > t_max ? buf->t1 : t_max;
        k.index->t_min = buf->t0 < k.index->t_min ? buf->t0 : k.index->t_min;
    }
    k.index->scale = t_max > k.index->t_min ? LEAVES / (t_max - k.index->t_min) : 0;
    return OK;
}

enum status packer_prepare_few(struct packer *k, const int *moment)
{
    if (k->n > PACKER_FEW)
        return OK;
    k->few = sys_calloc(1, sizeof *k->few);
    int16_t *all = sys_malloc(2 * sizeof *all * ((size_t)k->p->n_buffers + 1));
    if (!k->few || !all) {
        free(all);
        return status_no_memory("while planning");
    }
    k->few->begins = all;
    k->few->ends = all + k->p->n_buffers;
    for (int i = 0; i < 2 * k->n; i++)
        (moment[i] % 2 ? k->few->begins : k->few->ends)[k->order[moment[i] / 2]] = (int16_t)i;
    return OK;
}

void packer_free(struct packer *k)
{
    if (k->few)
        free(k->few->begins);
    free(k->few);
    free(k->order);
    free(k->placed);
    free(k->near);
    free(k->seen);
    free(k->sorted);
    if (k->index) {
        free(k->index->next);
        free(k->index->item);
    }
    free(k->index);
}
