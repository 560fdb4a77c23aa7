/* First-fit and best-fit in several greedy orders, over an index by time of what is placed. */
#include "plan/schedule/pack.h"

#include "base/sort.h"
#include "base/sys.h"
#include "plan/schedule/pack_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW 1500    /* buffers up to which every order is tried, and not only the best one */
#define MANY 20000  /* buffers beyond which their time, in proportion to n x live, is spent on the largest only */
#define LEAVES 4096 /* of the time index */

/* A buffer that has its place. */
struct placed {
    int64_t lo, hi;
    double t0, t1;
};

/* The same where only its place counts. */
struct span {
    int64_t lo, hi;
};

/* What is placed, found by time: a segment tree over LEAVES slices of time. A buffer hangs on the few nodes that make up its
 * lifetime, so that a short-lived one meets its contemporaries without looking at the rest. */
struct time_index {
    double t_min, scale;
    int head[2 * LEAVES]; /* lists of entries, -1 ends */
    int *next, *item;
    int n, cap;
};

struct packer {
    struct program *p;
    int *order; /* transient buffers of the tier */
    int n;
    struct placed *placed; /* in order of placement */
    struct span *near;     /* those that live at the same time as the one being placed */
    int *seen;             /* seen[i] == j: placed i is in near for j */
    int *sorted;           /* placed, in order of address */
    struct time_index *index;
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

/* Everything placed that lives at the same time: on the nodes within the lifetime, and on their ancestors. */
static int gather(struct packer *k, const struct buffer *b, int self)
{
    int n = 0, l = leaf_of(k->index, b->t0) + LEAVES, r = leaf_of(k->index, b->t1) + LEAVES;
    for (; l >= 1; l /= 2, r /= 2) /* level by level: nodes l..r are those that meet the lifetime */
        for (int node = l; node <= r; node++)
            gather_node(k, node, b, self, &n);
    return n;
}

/* By address: quicksort down to short runs. Called for every buffer, where qsort takes up to a sixth of planning time more. The
 * order of equal ones, of which one at most lives at a time, changes no place that is found. */
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

/* The n in near by address. Where nearly everything is near (saved activations on nvme), walking all that is placed beats
 * sorting. */
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

/* Enters the newly placed buffer i. */
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

/* The lowest (or tightest) gap among the n in near. */
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

/* Places all buffers in the current order; returns the arena size, or -1 out of memory. */
static int64_t place_all(struct packer *k, int64_t base, int best_fit)
{
    int64_t top = base;
    k->index->n = 0;
    for (int i = 0; i < 2 * LEAVES; i++)
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

/* The most bytes that live at once above base, and of each class, persistent ones included. */
static void find_peaks(const struct packer *k, const int *moment, enum tier tier, int64_t base)
{
    int64_t live[CLASSES] = {0}, all = base, *peak = k->p->peak[tier];
    for (int b = 0; b < k->p->n_persistent; b++)
        if (k->p->buffers[b].tier == tier)
            live[k->p->buffers[b].class] += round_up(k->p->buffers[b].bytes, BUFFER_ALIGN);
    memcpy(peak, live, sizeof live);
    k->p->lower_bound[tier] = base;
    for (int i = 0; i < 2 * k->n; i++) {
        const struct buffer *b = &k->p->buffers[k->order[moment[i] / 2]];
        int64_t bytes = moment[i] % 2 ? pack_padded(b) : -pack_padded(b);
        all += bytes;
        live[b->class] += bytes;
        k->p->lower_bound[tier] = max_i64(k->p->lower_bound[tier], all);
        peak[b->class] = max_i64(peak[b->class], live[b->class]);
    }
}

/* How many of many buffers are placed first, until one is enough. */
static const int large[] = {2000, 750};

/* Of many buffers, places the n_large of the largest area first, by size, then the others around them in order of time, and keeps
 * that if it ends below `most`. Returns the end of what is kept, or -1 out of memory. Sweeps alone leave gaps that large buffers
 * do not fit into (of 14B's 635,102 on the device at 1m tokens 5%, with 750 placed first 1%). */
static int64_t place_large_first(const struct packer *all, const int *moment, int n_large, int64_t base, int64_t bound,
                                 int64_t most)
{
    struct packer k = *all;
    size_t n = (size_t)all->n;
    int *rank = sys_malloc(sizeof *rank * n);
    double *area = sys_malloc(sizeof *area * n);
    int64_t *address = sys_malloc(sizeof *address * (size_t)n_large), end = -1;
    k.order = sys_malloc(sizeof *k.order * (size_t)n_large);
    if (!rank || !area || !address || !k.order)
        goto out;
    for (int i = 0; i < all->n; i++) {
        const struct buffer *b = &all->p->buffers[all->order[i]];
        rank[i] = i;
        area[i] = -(double)b->bytes * (b->t1 - b->t0);
    }
    if (!sort_by_key(area, rank, all->n))
        goto out;
    for (int i = 0; i < n_large; i++)
        area[rank[i]] = -(double)all->p->buffers[all->order[rank[i]]].bytes;
    if (!sort_by_key(area, rank, n_large))
        goto out;
    for (int i = 0; i < n_large; i++)
        k.order[i] = all->order[rank[i]];
    k.n = n_large;
    if (place_all(&k, base, 1) < 0)
        goto out;
    for (int i = 0; i < n_large; i++)
        address[i] = k.placed[i].lo;
    end = pack_sweep_around(k.p->buffers, all->order, moment, all->n, base, bound, most, rank, address, n_large);
out:
    free(rank);
    free(area);
    free(address);
    free(k.order);
    return end;
}

/* The end at which a packing is kept without trying others. */
static int64_t good_enough(int64_t bound, int64_t room, double slack)
{
    return bound > room ? INT64_MAX : min_i64(bound + (int64_t)(slack * (double)bound), room);
}

enum status pack_tier(struct program *p, enum tier tier, int64_t base, int64_t room, double slack)
{
    struct packer k = {.p = p};
    enum status st = OK;
    int *moment = NULL;
    size_t cap = (size_t)p->n_buffers + 1;
    k.order = sys_malloc(sizeof(int) * cap);
    k.placed = sys_malloc(sizeof *k.placed * cap);
    k.near = sys_malloc(sizeof *k.near * cap);
    k.seen = sys_malloc(sizeof(int) * cap);
    k.sorted = sys_malloc(sizeof(int) * cap);
    k.index = sys_calloc(1, sizeof *k.index);
    if (!k.order || !k.placed || !k.near || !k.seen || !k.sorted || !k.index) {
        st = status_fail(ERR_NOMEM, "out of memory while planning");
        goto out;
    }
    double t_max = -1e300;
    k.index->t_min = 1e300;
    for (int b = p->n_persistent; b < p->n_buffers; b++) {
        struct buffer *buf = &p->buffers[b];
        if (buf->tier != tier)
            continue;
        buf->address = 0; /* if it is never used */
        if (buf->t1 <= buf->t0)
            continue;
        k.order[k.n++] = b;
        t_max = buf->t1 > t_max ? buf->t1 : t_max;
        k.index->t_min = buf->t0 < k.index->t_min ? buf->t0 : k.index->t_min;
    }
    k.index->scale = t_max > k.index->t_min ? LEAVES / (t_max - k.index->t_min) : 0;
    moment = pack_moments(p->buffers, k.order, k.n);
    if (!moment) {
        st = status_fail(ERR_NOMEM, "out of memory while planning");
        goto out;
    }
    find_peaks(&k, moment, tier, base);
    /* of many buffers, what sweeps leave is put up with up to 2% */
    int64_t bound = p->lower_bound[tier], enough = good_enough(bound, room, k.n > FEW ? fmax(slack, 0.02) : slack);
    int64_t top = pack_sweep(p->buffers, k.order, moment, k.n, base, bound,
                             good_enough(bound, room, k.n > MANY ? fmax(slack, 0.01) : slack));
    for (size_t i = 0; k.n > MANY && i < sizeof large / sizeof *large && top > enough; i++)
        top = place_large_first(&k, moment, large[i], base, bound, top);
    p->arena[tier] = top;
    for (int attempt = 0; top >= 0 && k.n <= MANY && attempt < (k.n > FEW ? 1 : 6) && p->arena[tier] > enough; attempt++) {
        static int (*const orders[])(const void *, const void *, void *) = {by_size, by_area, by_time};
        qsort_r(k.order, (size_t)k.n, sizeof *k.order, orders[attempt / 2], p->buffers);
        top = place_all(&k, base, k.n > FEW || attempt % 2 == 0);
        for (int i = 0; i < k.n && top >= 0 && top < p->arena[tier]; i++)
            p->buffers[k.order[i]].address = k.placed[i].lo;
        p->arena[tier] = min_i64(p->arena[tier], top);
    }
    if (top < 0)
        st = status_fail(ERR_NOMEM, "out of memory while planning");
out:
    free(moment);
    free(k.order);
    free(k.placed);
    free(k.near);
    free(k.seen);
    free(k.sorted);
    if (k.index) {
        free(k.index->next);
        free(k.index->item);
    }
    free(k.index);
    return st;
}

enum status pack_live_at(const struct program *p, const uint8_t *moment, int n, int64_t (*out)[TIERS])
{
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_buffers + 1)),
        *last = sys_malloc(sizeof *last * (size_t)(p->n_buffers + 1));
    int64_t(*change)[TIERS] = sys_calloc((size_t)p->n_instrs + 1, sizeof *change), live[TIERS] = {0};
    enum status st = first && last && change ? OK : status_fail(ERR_NOMEM, "out of memory while planning");
    for (int b = 0; st == OK && b < p->n_buffers; b++)
        first[b] = -1;
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            int b = p->operands[p->instrs[i].first_operand + k].buffer;
            first[b] = first[b] < 0 ? i : first[b];
            last[b] = i;
        }
    for (int b = p->n_persistent; st == OK && b < p->n_buffers; b++) {
        int64_t bytes = round_up(p->buffers[b].bytes, BUFFER_ALIGN);
        if (first[b] < 0)
            continue;
        change[first[b]][p->buffers[b].tier] += bytes;
        change[last[b] + 1][p->buffers[b].tier] -= bytes;
    }
    memset(out, 0, sizeof *out * (size_t)n);
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        for (int t = 0; t < TIERS; t++) {
            int64_t *most = &out[moment ? moment[i] : 0][t];
            live[t] += change[i][t];
            *most = max_i64(*most, live[t]);
        }
    free(first);
    free(last);
    free(change);
    return st;
}

enum status pack_live_in_order(const struct program *p, int64_t out[TIERS])
{
    return pack_live_at(p, NULL, 1, (int64_t(*)[TIERS])out);
}
