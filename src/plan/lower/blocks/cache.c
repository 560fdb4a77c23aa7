/* Attention over cached keys and values, or latents: over the tail first, then over each whole block under the block's predicate, in the
 * order of slots; the parts are merged. Only blocks that are attended are read and computed with. */
#include "plan/lower/blocks/cache.h"

#include "plan/lower/blocks/latent.h"
#include "plan/lower/blocks/latent_cache.h"
#include "plan/lower/strategy.h"
#include "plan/lower/emit.h"
#include "plan/lower/value.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* --- Creation --- */

/* Creates one tile of a layer's keys or values; each cached block is a tile of the value. */
static void create(struct lowering *L, int64_t cols, struct value *v, const char *name, int64_t blocks, enum residency r)
{
    int64_t row_bytes = cols * dtype_size(L->s.key.dtype);
    if (blocks == 0 || L->st != OK)
        return;
    value_create(L, v, name, CLASS_ACT, blocks * L->s.cache_block, row_bytes, L->s.cache_block, r);
    home_create_apart(L, v, r);
}

static void create_tile(struct lowering *L, const struct layer_cache *c, const struct attention_block *a, int layer, int tile)
{
    const struct head_tiles *h = heads_of(L, a);
    const struct attention_shape *shape = &L->m->shapes[a->shape];
    const int latents = caches_latents(L, a);
    const int64_t k_cols = latents ? shape->rotated : h->kv * h->dim, v_cols = latents ? shape->kv_latent : h->kv * h->value;
    int64_t slots = cached_slots(L->m, &L->s, a->mask);
    enum residency tail = L->s.placement.cached == RES_NVME ? RES_HOST : L->s.placement.cached;
    const struct {
        struct value *v;
        const char *what;
        int64_t blocks;
        enum residency r;
    } all[] = {{&c->tail_k[tile], "tail_k", 1, tail},
               {&c->tail_v[tile], "tail_v", 1, tail},
               {&c->k[tile], "cache_k", slots, L->s.placement.cached},
               {&c->v[tile], "cache_v", slots, L->s.placement.cached}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[48];
        snprintf(name, sizeof name, "layer%d.%s%d", layer, all[i].what, tile);
        create(L, i % 2 ? v_cols : k_cols, all[i].v, name, all[i].blocks, all[i].r);
    }
}

void cache_create(struct lowering *L, struct block *b)
{
    if (!L->caches)
        L->caches = memory_new(L, (int)L->m->config.layers, sizeof *L->caches);
    if (L->st != OK)
        return;
    struct layer_cache *c = &L->caches[b->layer];
    struct value **all[] = {&c->tail_k, &c->tail_v, &c->k, &c->v};
    c->n = heads_of(L, &b->weights->attention)->n_kv;
    for (int i = 0; i < 4; i++)
        *all[i] = memory_new(L, c->n, sizeof(struct value));
    for (int t = 0; t < c->n && L->st == OK; t++)
        create_tile(L, c, &b->weights->attention, b->layer, t);
}

void cache_bind(struct lowering *L, const struct block *b, int end)
{
    const struct layer_cache *c = &L->caches[b->layer];
    for (int t = 0; t < c->n; t++) {
        value_bind_as(L, &c->tail_k[t], BINDING_TAIL_K, model_unit_of_layer(b->layer), end);
        value_bind_as(L, &c->tail_v[t], BINDING_TAIL_V, model_unit_of_layer(b->layer), end);
        value_bind_as(L, &c->k[t], BINDING_CACHE_K, model_unit_of_layer(b->layer), end);
        value_bind_as(L, &c->v[t], BINDING_CACHE_V, model_unit_of_layer(b->layer), end);
    }
}

void cache_work_create(struct lowering *L, struct attention_work *W)
{
    int64_t q = W->attended.q * W->attended.value;
    heads_value(L, W, &W->o_part, "o_part", q * 4);
    lse_part_value(L, W, "lse_part");
    latent_cache_values(L, W);
}

/* --- Forward --- */

/* Appends the new rows to a tail: tail[index] = x. */
static void append(struct lowering *L, struct value *tail, struct value *x)
{
    value_get(L, tail, 0);
    struct op_attrs *a = emit(L, OP_SCATTER, LANE_COMPUTE);
    a->embed.rows = L->s.rows;
    a->embed.dim = x->row_bytes / dtype_size(L->s.key.dtype);
    a->embed.vocab = tail->rows;
    a->embed.dtype = (int32_t)L->s.key.dtype;
    arg_update(L, 0, tail, 0, tail->rows, DEV);
    arg_read(L, 1, x, 0, L->s.rows, DEV);
    arg_read(L, 2, &L->index, 0, L->s.rows, DEV);
    emit_done(L, 0);
    value_put_home(L, tail, 0, tail->rows, DEV);
}

void cache_append_latents(struct lowering *L, const struct block *b)
{
    const struct layer_cache *c = &L->caches[b->layer];
    struct value *shared, *latent = latent_rows(L, b, &shared);
    append(L, &c->tail_k[0], shared);
    append(L, &c->tail_v[0], latent);
}

/* Gets tile `tile` of cached keys and values, and sets them as what f attends. */
static void get_block(struct lowering *L, struct forward_tile *f, struct value *k, struct value *v, int tile)
{
    f->k = k;
    f->v = v;
    f->first_key = f->first_value = tile * L->s.cache_block;
    f->keys = L->s.cache_block;
    value_get(L, k, tile);
    value_get(L, v, tile);
    if (caches_latents(L, f->weights))
        latent_join(L, f);
}

/* Ends the visit of what get_block got: of the joined rows of latents. */
static void end_block(struct lowering *L, const struct forward_tile *f)
{
    if (caches_latents(L, f->weights))
        value_drop(L, f->k, 0);
}

static void attend_tail(struct lowering *L, const struct layer_cache *c, int t, const struct forward_tile *sum)
{
    struct forward_tile tail = *sum;
    get_block(L, &tail, &c->tail_k[t], &c->tail_v[t], 0);
    emit_attention_forward(L, 0, &tail);
    end_block(L, &tail);
}

static void attend_slot(struct lowering *L, const struct layer_cache *c, int t, int slot, const struct forward_tile *sum)
{
    struct attention_work *W = attention_work(L, sum->weights);
    struct forward_tile whole = *sum;
    whole.o = &W->o_part;
    whole.lse = &W->lse_part;
    L->predicate = cached_predicate(L->m, &L->s, sum->weights->mask, slot);
    get_block(L, &whole, &c->k[t], &c->v[t], slot);
    value_new(L, whole.o, 0);
    value_new(L, whole.lse, 0);
    emit_attention_forward(L, slot + 1, &whole);
    emit_attention_merge(L, sum);
    end_block(L, &whole);
    value_drop(L, &c->k[t], slot);
    value_drop(L, &c->v[t], slot);
    L->predicate = 0;
}

void cache_forward(struct lowering *L, const struct block *b, const struct cached_tile *t, const struct forward_tile *f)
{
    const struct layer_cache *c = &L->caches[b->layer];
    const int latents = caches_latents(L, f->weights);
    const struct forward_tile all = latents ? latent_absorb(L, f) : *f;
    if (t->is_first && !latents) {
        append(L, &c->tail_k[t->tile], f->k);
        append(L, &c->tail_v[t->tile], f->v);
    }
    const struct forward_tile sum = sum_begin(L, &all);
    attend_tail(L, c, t->tile, &sum);
    for (int slot = 0; slot < (int)cached_slots(L->m, &L->s, f->weights->mask); slot++)
        attend_slot(L, c, t->tile, slot, &sum);
    value_drop(L, &c->tail_k[t->tile], 0);
    value_drop(L, &c->tail_v[t->tile], 0);
    sum_end(L, &all, &sum);
    if (latents)
        latent_results(L, &all, f);
}
