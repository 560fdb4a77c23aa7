/* Tries of strings. */
#include "text/trie.h"

#include "base/sys.h"

#include <stdlib.h>

static void place(struct trie *t, uint64_t key, uint32_t to)
{
    uint64_t slot = (key * 0x9e3779b97f4a7c15u) >> 20 & t->mask;
    while (t->edges[slot].key)
        slot = (slot + 1) & t->mask;
    t->edges[slot] = (struct trie_edge){key, to};
}

/* Makes room for one more node. */
static enum status grow(struct trie *t)
{
    if (t->nodes < t->room)
        return OK;
    uint32_t room = t->room ? 2 * t->room : 256;
    struct trie former = *t;
    int32_t *values = sys_realloc(t->values, room * sizeof *values);
    if (values)
        t->values = values;
    struct trie_edge *edges = values ? sys_calloc((size_t)room * 2, sizeof *edges) : NULL;
    if (!edges)
        return status_fail(ERR_NOMEM, "out of memory: a trie of %u nodes", room);
    t->edges = edges;
    t->mask = (uint64_t)room * 2 - 1;
    t->room = room;
    for (uint64_t i = 0; former.edges && i <= former.mask; i++)
        if (former.edges[i].key)
            place(t, former.edges[i].key, former.edges[i].to);
    free(former.edges);
    if (t->nodes == 0)
        t->values[t->nodes++] = -1;
    return OK;
}

enum status trie_add(struct trie *t, const void *text, size_t n, int32_t value)
{
    const uint8_t *bytes = text;
    uint32_t node = 0;
    TRY(grow(t));
    for (size_t i = 0; i < n; i++) {
        uint32_t next = trie_step(t, node, bytes[i]);
        if (!next) {
            TRY(grow(t));
            next = t->nodes++;
            t->values[next] = -1;
            place(t, ((uint64_t)node << 8 | bytes[i]) + 1, next);
        }
        node = next;
    }
    t->values[node] = value;
    return OK;
}

void trie_free(struct trie *t)
{
    free(t->edges);
    free(t->values);
    *t = (struct trie){0};
}
