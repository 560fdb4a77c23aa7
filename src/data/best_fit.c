/* Bins listed by the room left in them, and a tree of bits that finds the least room of any bin that is enough. */
#include "data/best_fit.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { LEVELS = 6 }; /* levels of the tree, with 64 branches each: rooms below 2^36 */

struct rooms {
    int32_t *head;   /* [capacity + 1]: by room, the first bin of the list of bins with that room; -1: none */
    int32_t *behind; /* [bins]: the next bin in the same list; -1: none */
    uint64_t *bits[LEVELS], *memory;
    int64_t n[LEVELS]; /* bits of each level */
};

static void rooms_free(struct rooms *r)
{
    free(r->head);
    free(r->behind);
    free(r->memory);
}

static enum status rooms_create(int64_t capacity, int64_t most, struct rooms *r)
{
    int64_t words = 0, of = capacity + 1;
    *r = (struct rooms){0};
    for (int l = 0; l < LEVELS; l++, of = ceil_div(of, 64)) {
        r->n[l] = of;
        words += ceil_div(of, 64);
    }
    r->head = sys_malloc((size_t)(capacity + 1) * sizeof *r->head);
    r->behind = sys_malloc((size_t)most * sizeof *r->behind);
    r->memory = sys_calloc((size_t)words, sizeof *r->memory);
    if (!r->head || !r->behind || !r->memory) {
        rooms_free(r);
        return status_fail(ERR_NOMEM, "out of memory: packing %lld documents", (long long)most);
    }
    memset(r->head, 0xff, (size_t)(capacity + 1) * sizeof *r->head);
    uint64_t *at = r->memory;
    for (int l = 0; l < LEVELS; at += ceil_div(r->n[l], 64), l++)
        r->bits[l] = at;
    return OK;
}

static void put(struct rooms *r, int64_t room, int32_t bin)
{
    r->behind[bin] = r->head[room];
    r->head[room] = bin;
    for (int l = 0; l < LEVELS; l++, room >>= 6)
        r->bits[l][room >> 6] |= (uint64_t)1 << (room & 63);
}

static int32_t take(struct rooms *r, int64_t room)
{
    int32_t bin = r->head[room];
    r->head[room] = r->behind[bin];
    for (int l = 0; l < LEVELS && (l > 0 || r->head[room] < 0); l++, room >>= 6) {
        uint64_t *word = &r->bits[l][room >> 6];
        *word &= ~((uint64_t)1 << (room & 63));
        if (*word)
            break;
    }
    return bin;
}

/* Returns the least room of any bin that is at least `at`; -1: there is none. */
static int64_t find(const struct rooms *r, int64_t at)
{
    int l = 0;
    uint64_t word = 0;
    for (; l < LEVELS && at < r->n[l]; l++) {
        word = r->bits[l][at >> 6] & (~(uint64_t)0 << (at & 63));
        if (word)
            break;
        at = (at >> 6) + 1;
    }
    if (!word)
        return -1;
    at = (at >> 6 << 6) + __builtin_ctzll(word);
    while (l-- > 0)
        at = (at << 6) + __builtin_ctzll(r->bits[l][at]);
    return at;
}

/* Sorts the indices of sizes from the largest size to the smallest, equal sizes in their given order: radix sort by capacity -
 * size. */
static enum status sort(const int32_t *size, int64_t n, int64_t capacity, int32_t *order)
{
    enum { BITS = 16, BUCKETS = 1 << BITS };
    int32_t *other = sys_malloc((size_t)n * sizeof *other);
    int64_t *first = sys_malloc((BUCKETS + 1) * sizeof *first);
    if (!other || !first) {
        free(other);
        free(first);
        return status_fail(ERR_NOMEM, "out of memory: packing %lld documents", (long long)n);
    }
    for (int64_t i = 0; i < n; i++)
        other[i] = (int32_t)i;
    for (int shift = 0; shift < 2 * BITS; shift += BITS) {
        int32_t *from = shift ? order : other, *to = shift ? other : order;
        memset(first, 0, (BUCKETS + 1) * sizeof *first);
        for (int64_t i = 0; i < n; i++)
            first[((capacity - size[from[i]]) >> shift & (BUCKETS - 1)) + 1]++;
        for (int b = 0; b < BUCKETS; b++)
            first[b + 1] += first[b];
        for (int64_t i = 0; i < n; i++)
            to[first[(capacity - size[from[i]]) >> shift & (BUCKETS - 1)]++] = from[i];
    }
    memcpy(order, other, (size_t)n * sizeof *order);
    free(other);
    free(first);
    return OK;
}

enum status best_fit(const int32_t *size, int64_t n, int64_t capacity, int32_t *bin, int64_t *bins)
{
    struct rooms r;
    *bins = 0;
    if (n == 0)
        return OK;
    int32_t *order = sys_malloc((size_t)n * sizeof *order);
    if (!order)
        return status_fail(ERR_NOMEM, "out of memory: packing %lld documents", (long long)n);
    enum status st = sort(size, n, capacity, order);
    if (st == OK)
        st = rooms_create(capacity, n, &r);
    if (st != OK) {
        free(order);
        return st;
    }
    for (int64_t k = 0; k < n; k++) {
        int32_t i = order[k];
        int64_t room = find(&r, size[i]);
        bin[i] = room < 0 ? (int32_t)(*bins)++ : take(&r, room);
        room = (room < 0 ? capacity : room) - size[i];
        if (room > 0)
            put(&r, room, bin[i]);
    }
    rooms_free(&r);
    free(order);
    return OK;
}
