/* A thread's cache of the ids of pieces. Private to this folder. */
#ifndef LTRAIN_TEXT_PIECE_CACHE_H
#define LTRAIN_TEXT_PIECE_CACHE_H

#include "base/status.h"
#include "base/sys.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 16 /* most bytes of a piece that is kept */
#define PIECE_IDS 3    /* most ids of a piece that is kept */
#define PIECE_SLOTS (1 << 15)

/* Key that has the whole piece: its first and its last bytes, which may overlap, and its length. */
struct piece_key {
    uint64_t first, last;
    uint32_t n;
};

/* A kept piece and its ids, in half a cache line. Each piece has a single possible slot; a new piece replaces the former one
 * there. */
struct piece_slot {
    uint64_t first, last;
    int32_t id[PIECE_IDS];
    uint32_t sizes; /* bytes << 8 | ids; 0: free */
};

struct piece_cache {
    struct piece_slot slot[PIECE_SLOTS];
};

static inline enum status piece_cache_create(struct piece_cache **out)
{
    *out = sys_calloc(1, sizeof **out);
    return *out ? OK : status_fail(ERR_NOMEM, "out of memory: pieces of text");
}

static inline void piece_cache_free(struct piece_cache *c)
{
    free(c);
}

/* Makes the key of a piece; returns 0 if the piece is too long or empty. */
static inline int piece_key_make(const uint8_t *p, size_t n, struct piece_key *k)
{
    uint32_t low, high;
    if (n > PIECE_BYTES || n == 0)
        return 0;
    k->n = (uint32_t)n;
    k->last = 0;
    if (n >= 8) {
        memcpy(&k->first, p, 8);
        memcpy(&k->last, p + n - 8, 8);
    } else if (n >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        k->first = (uint64_t)high << 32 | low;
    } else {
        k->first = (uint64_t)p[0] | (uint64_t)p[n / 2] << 8 | (uint64_t)p[n - 1] << 16;
    }
    return 1;
}

static inline struct piece_slot *piece_cache_slot(struct piece_cache *c, const struct piece_key *k)
{
    uint64_t h = (k->first * 0x9e3779b97f4a7c15u) ^ (k->last * 0xc2b2ae3d27d4eb4fu) ^ (uint64_t)k->n << 40;
    return &c->slot[(h ^ h >> 32) * 0x9e3779b97f4a7c15u >> 49];
}

/* Copies a piece's ids and returns their number; 0: the piece is not in the cache. */
static inline size_t piece_cache_take(struct piece_cache *c, const struct piece_key *k, int32_t *id)
{
    const struct piece_slot *s = piece_cache_slot(c, k);
    if (s->first != k->first || s->last != k->last || s->sizes >> 8 != k->n)
        return 0;
    memcpy(id, s->id, sizeof s->id);
    return s->sizes & 0xff;
}

static inline void piece_cache_put(struct piece_cache *c, const struct piece_key *k, const int32_t *id, size_t n)
{
    struct piece_slot *s = piece_cache_slot(c, k);
    if (n == 0 || n > PIECE_IDS)
        return;
    s->first = k->first;
    s->last = k->last;
    s->sizes = k->n << 8 | (uint32_t)n;
    memcpy(s->id, id, n * sizeof *id);
}

#endif
