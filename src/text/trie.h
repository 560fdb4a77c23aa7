/* Tries of strings. Private to this folder. */
#ifndef LTRAIN_TEXT_TRIE_H
#define LTRAIN_TEXT_TRIE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct trie_edge {
    uint64_t key; /* edge: (node << 8 | byte) + 1; 0: free slot */
    uint32_t to;
};

struct trie {
    struct trie_edge *edges;
    uint64_t mask;
    uint64_t n_edges;
    int32_t *values; /* value of each node; -1: no string ends there */
    uint32_t nodes, room;
};

/* Adds a string; if the trie has it, it gets the new value. Node 0 is the root. */
enum status trie_add(struct trie *t, const void *text, size_t n, int32_t value);
void trie_free(struct trie *t);

/* Returns the node to which a byte leads from `node`; 0: none. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte)
{
    uint64_t key = ((uint64_t)node << 8 | byte) + 1, slot = (key * 0x9e3779b97f4a7c15u) >> 20 & t->mask;
    for (; t->edges[slot].key; slot = (slot + 1) & t->mask)
        if (t->edges[slot].key == key)
            return t->edges[slot].to;
    return 0;
}

#endif
