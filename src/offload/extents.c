/* The extent table: a sorted array, so that overlaps are neighbours.
 *
 * A training step rewrites the extents of the step before, which is a binary search; only the first write of each extent moves
 * others. */
#include "offload/extents.h"

#include "base/sys.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct extent {
    int64_t offset, bytes;
    uint64_t hash;
    int whole;
};

struct extents {
    pthread_mutex_t lock;
    struct extent *table;
    size_t n, capacity;
};

struct extents *extents_create(void)
{
    struct extents *e = sys_calloc(1, sizeof *e);
    if (e)
        pthread_mutex_init(&e->lock, NULL);
    return e;
}

void extents_destroy(struct extents *e)
{
    if (!e)
        return;
    pthread_mutex_destroy(&e->lock);
    free(e->table);
    free(e);
}

/* Returns the index of the first extent that ends behind `offset`. */
static size_t first_ending_behind(const struct extents *e, int64_t offset)
{
    size_t low = 0, high = e->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (e->table[mid].offset + e->table[mid].bytes > offset)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static int reserve_one(struct extents *e)
{
    if (e->n < e->capacity)
        return 1;
    size_t capacity = e->capacity ? 2 * e->capacity : 64;
    struct extent *table = sys_malloc(capacity * sizeof *table);
    if (!table)
        return 0;
    if (e->n > 0)
        memcpy(table, e->table, e->n * sizeof *table);
    free(e->table);
    e->table = table;
    e->capacity = capacity;
    return 1;
}

enum status extents_begin(struct extents *e, int64_t offset, int64_t bytes)
{
    pthread_mutex_lock(&e->lock);
    int reserved = reserve_one(e);
    if (reserved) {
        size_t i = first_ending_behind(e, offset), j = i;
        while (j < e->n && e->table[j].offset < offset + bytes)
            j++;
        memmove(e->table + i + 1, e->table + j, (e->n - j) * sizeof *e->table);
        e->n = e->n - (j - i) + 1;
        e->table[i] = (struct extent){.offset = offset, .bytes = bytes};
    }
    pthread_mutex_unlock(&e->lock);
    return reserved ? OK : status_fail(ERR_NOMEM, "no memory for the table of nvme extents");
}

static struct extent *exactly(struct extents *e, int64_t offset, int64_t bytes)
{
    size_t i = first_ending_behind(e, offset);
    return i < e->n && e->table[i].offset == offset && e->table[i].bytes == bytes ? &e->table[i] : NULL;
}

void extents_finish(struct extents *e, int64_t offset, int64_t bytes, uint64_t hash)
{
    pthread_mutex_lock(&e->lock);
    struct extent *x = exactly(e, offset, bytes);
    if (x) {
        x->hash = hash;
        x->whole = 1;
    }
    pthread_mutex_unlock(&e->lock);
}

int extents_find(struct extents *e, int64_t offset, int64_t bytes, uint64_t *hash)
{
    pthread_mutex_lock(&e->lock);
    const struct extent *x = exactly(e, offset, bytes);
    int whole = x && x->whole;
    if (whole)
        *hash = x->hash;
    pthread_mutex_unlock(&e->lock);
    return whole;
}
