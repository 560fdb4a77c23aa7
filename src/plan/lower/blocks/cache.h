/* Attention over cached keys and values. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_CACHE_H
#define LTRAIN_PLAN_LOWER_BLOCKS_CACHE_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* Of one layer: a row for each token, by tile of KV heads. tail: the block that is being filled; k, v: whole blocks by slot. */
struct layer_cache {
    struct value *tail_k, *tail_v, *k, *v; /* [n] */
    int n;                                 /* tiles of KV heads */
};

/* Persistent values of all layers (L->caches). */
void cache_create(struct lowering *L);
/* What their homes hold when the program starts, or ends. */
void cache_bind(struct lowering *L, int end);
/* Values that the layers of a shape share. */
void cache_work_create(struct lowering *L, struct attention_work *W);

/* A tile of query heads: its tile of KV heads, and whether it is the first one there. */
struct cached_tile {
    int tile, is_first;
};
/* New rows of k and v join the tail, then f's queries attend the tail and each whole block that they reach: f->o and f->lse. */
void cache_forward(struct lowering *L, const struct block *b, const struct cached_tile *t, const struct forward_tile *f);

#endif
