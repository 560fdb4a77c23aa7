/* First-fit and best-fit over an index by time of what is placed. */
#include "plan/schedule/pack_greedy.h"

#include "base/sys.h"
#include "plan/schedule/pack_sweep.h"

#include <stdlib.h>
#include <string.h>

/* Leaves of the time index: about as many as there are buffers, for what lasts looks at all of them. */
#define FEWEST_LEAVES 64
#define MOST_LEAVES 4096

/* The bytes that a placed buffer takes, where its lifetime does not count. */
struct span {
    int64_t lo, hi;
};

/* What is placed, found by time: a segment tree over slices of time. A buffer hangs on the few nodes that make up its
 * lifetime, so that a short-lived one meets its contemporaries without looking at the rest. */
struct time_index {
    double t_min, scale;
    int leaves;
    int head[2 * MOST_LEAVES]; /* lists of entries, -1 ends */
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
    return leaf < 0 ? 0 : leaf >= x->leaves ? x->leaves - 1 : leaf;
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
    for (int l = leaf_of(x, o->t0) + x->leaves, r = leaf_of(x, o->t1) + x->leaves + 1; l < r; l /= 2, r /= 2) {
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

/* Fills k->near with the places of all contemporaries of b: from the nodes within its lifetime, and their ancestors. */
static int gather(struct packer *k, const struct buffer *b, int self)
{
    int n = 0, l = leaf_of(k->index, b->t0) + k->index->leaves, r = leaf_of(k->index, b->t1) + k->index->leaves;
    for (; l >= 1; l /= 2, r /= 2) /* level by level: nodes l..r meet the lifetime */
        for (int node = l; node <= r; node++)
            gather_node(k, node, b, self, &n);
    return n;
}

/* Sorts by address: quicksort down to runs of SHORT, then insertion. It runs once per buffer, and with qsort planning takes up to
 * a sixth longer. The order of equal addresses changes no place that is found: at most one of them lives at a time. */
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

/* Sorts the n places in near by address. Where nearly everything is near (saved activations on nvme), walking through all that is
 * placed is faster than sorting. */
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

/* The address of the lowest, or with best_fit the tightest, gap of `need` bytes among the n places in near, else above them. */
static int64_t find_place(const struct packer *k, int n, int64_t need, int64_t base, int best_fit)
{
    int64_t at = base, found = -1, found_size = 0;
    for (int i = 0; i < n; i++) {
        const struct span *o = &k->near[i];
        if (o->lo - at >= need && (found < 0 || o->lo - at < found_size)) {
            found = at;
            found_size = o->lo - at;
            if (!best_fit)
                break;
        }
        at = max_i64(at, o->hi);
    }
    return found >= 0 ? found : at;
}

int64_t packer_place(struct packer *k, int64_t base, int best_fit)
{
    int64_t top = base;
    k->index->n = 0;
    for (int i = 0; i < 2 * k->index->leaves; i++)
        k->index->head[i] = -1;
    for (int i = 0; i < k->n; i++)
        k->seen[i] = -1;
    for (int i = 0; i < k->n; i++) {
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
        return status_fail(ERR_NOMEM, "out of memory while planning");
    double t_max = -1e300;
    k.index->t_min = 1e300;
    for (int b = p->n_persistent; b < p->n_buffers; b++) {
        struct buffer *buf = &p->buffers[b];
        if (buf->tier != tier)
            continue;
        buf->address = 0; /* if it is never used */
        if (buf->t1 <= buf->t0)
            continue;
        k.order[out->n++] = b;
        t_max = buf->t1 > t_max ? buf->t1 : t_max;
        k.index->t_min = buf->t0 < k.index->t_min ? buf->t0 : k.index->t_min;
    }
    k.index->leaves = FEWEST_LEAVES;
    while (k.index->leaves < out->n && k.index->leaves < MOST_LEAVES)
        k.index->leaves *= 2;
    k.index->scale = t_max > k.index->t_min ? k.index->leaves / (t_max - k.index->t_min) : 0;
    return OK;
}

void packer_free(struct packer *k)
{
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
