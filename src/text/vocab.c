/* Tokens by text and by id. */
#include "text/vocab.h"

#include "base/sys.h"
#include "text/text_buffer.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct entry {
    size_t at;
    uint32_t n;
    int32_t id;
};

struct vocab {
    struct text_buffer pool;
    struct entry *entries;
    int64_t n, room;
    uint32_t *slots; /* number of the entry + 1; 0: free slot */
    uint64_t mask;
    int32_t *by_id; /* number of the entry, by id; -1: none */
    int64_t end, id_room;
};

enum status vocab_create(struct vocab **out)
{
    struct vocab *v = sys_calloc(1, sizeof *v);
    if (v)
        v->slots = sys_calloc(1024, sizeof *v->slots);
    if (!v || !v->slots) {
        free(v);
        return status_fail(ERR_NOMEM, "out of memory: a vocabulary");
    }
    v->mask = 1023;
    *out = v;
    return OK;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    text_buffer_free(&v->pool);
    free(v->entries);
    free(v->slots);
    free(v->by_id);
    free(v);
}

static uint64_t slot_of(const struct vocab *v, const void *text, size_t n)
{
    uint64_t slot = XXH3_64bits(text, n) & v->mask;
    for (; v->slots[slot]; slot = (slot + 1) & v->mask) {
        const struct entry *e = &v->entries[v->slots[slot] - 1];
        if (e->n == n && memcmp(v->pool.data + e->at, text, n) == 0)
            break;
    }
    return slot;
}

static enum status grow(struct vocab *v)
{
    int64_t room = v->room ? 2 * v->room : 512;
    uint64_t slots = 2 * (uint64_t)room;
    struct entry *entries = sys_realloc(v->entries, (size_t)room * sizeof *entries);
    if (entries)
        v->entries = entries;
    uint32_t *table = entries ? sys_calloc(slots, sizeof *table) : NULL;
    if (!table)
        return status_fail(ERR_NOMEM, "out of memory: a vocabulary of %lld tokens", (long long)room);
    free(v->slots);
    v->slots = table;
    v->mask = slots - 1;
    v->room = room;
    for (int64_t i = 0; i < v->n; i++)
        v->slots[slot_of(v, v->pool.data + v->entries[i].at, v->entries[i].n)] = (uint32_t)i + 1;
    return OK;
}

static enum status name_id(struct vocab *v, int64_t id, int64_t entry)
{
    if (id >= v->id_room) {
        int64_t room = v->id_room ? v->id_room : 512;
        while (room <= id)
            room *= 2;
        int32_t *by_id = sys_realloc(v->by_id, (size_t)room * sizeof *by_id);
        if (!by_id)
            return status_fail(ERR_NOMEM, "out of memory: a vocabulary of %lld ids", (long long)room);
        for (int64_t i = v->id_room; i < room; i++)
            by_id[i] = -1;
        v->by_id = by_id;
        v->id_room = room;
    }
    v->by_id[id] = (int32_t)entry;
    v->end = id >= v->end ? id + 1 : v->end;
    return OK;
}

enum status vocab_add(struct vocab *v, const void *text, size_t n, int64_t id)
{
    if (id < 0 || id >= MOST_TOKENS)
        return status_fail(ERR_INVALID, "the token %.*s has the id %lld, and ids are 0 to %d", (int)(n > 40 ? 40 : n),
                           (const char *)text, (long long)id, MOST_TOKENS - 1);
    uint64_t slot = slot_of(v, text, n);
    int64_t entry = (int64_t)v->slots[slot] - 1;
    if (entry < 0) {
        if (v->n == v->room) {
            TRY(grow(v));
            slot = slot_of(v, text, n);
        }
        entry = v->n;
        v->entries[entry] = (struct entry){.at = v->pool.n, .n = (uint32_t)n};
        TRY(text_buffer_add(&v->pool, text, n));
        v->slots[slot] = (uint32_t)entry + 1;
        v->n++;
    }
    v->entries[entry].id = (int32_t)id;
    return name_id(v, id, entry);
}

int32_t vocab_find(const struct vocab *v, const void *text, size_t n)
{
    uint32_t entry = v->slots[slot_of(v, text, n)];
    return entry ? v->entries[entry - 1].id : -1;
}

int vocab_text(const struct vocab *v, int64_t id, struct token_text *out)
{
    if (id < 0 || id >= v->end || v->by_id[id] < 0)
        return 0;
    const struct entry *e = &v->entries[v->by_id[id]];
    *out = (struct token_text){v->pool.data + e->at, e->n};
    return 1;
}

int64_t vocab_count(const struct vocab *v)
{
    return v->n;
}

int64_t vocab_end(const struct vocab *v)
{
    return v->end;
}

struct token_text vocab_at(const struct vocab *v, int64_t i, int32_t *id)
{
    *id = v->entries[i].id;
    return (struct token_text){v->pool.data + v->entries[i].at, v->entries[i].n};
}
