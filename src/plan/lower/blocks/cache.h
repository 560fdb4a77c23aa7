/* Attention over cached keys and values. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_CACHE_H
#define LTRAIN_PLAN_LOWER_BLOCKS_CACHE_H

#include "plan/lower/blocks/attend.h"
#include "plan/lower/blocks/block.h"

/* One layer's cache by tile of KV heads, a row for each token. tail: the block that is being filled; k, v: whole blocks by slot. Of
 * latents k are the keys' shared parts, and v the normalised latents. */
struct layer_cache {
    struct value *tail_k, *tail_v, *k, *v; /* [n] */
    int n;                                 /* tiles of KV heads */
};

/* Creates a layer's persistent values (in L->caches), and binds them, as members of struct block_lowering. */
void cache_create(struct lowering *L, struct block *b);
void cache_bind(struct lowering *L, const struct block *b, int end);
/* Creates the values that the layers of a shape share. */
void cache_work_create(struct lowering *L, struct attention_work *W);

/* Appends the new rows of latents to the tail, if latents are cached (latent_cache.h). */
void cache_append_latents(struct lowering *L, const struct block *b);

/* A tile of query heads, by its tile of KV heads: is_first is 1 for the first query tile of that KV tile. */
struct cached_tile {
    int tile, is_first;
};
/* Appends the new rows of k and v to the tail. Then f's queries attend the tail and each whole block within their reach, which
 * makes f->o and f->lse. Cached latents have been appended before. */
void cache_forward(struct lowering *L, const struct block *b, const struct cached_tile *t, const struct forward_tile *f);

#endif
