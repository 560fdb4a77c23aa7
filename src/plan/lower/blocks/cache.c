/* Attention over cached keys and values: over the tail first, then over each whole block under the block's predicate, in the
 * order of slots; the parts are merged. Only blocks that are attended are read and computed with. */
#include "plan/lower/blocks/cache.h"

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
        create(L, h->kv * (i % 2 ? h->value : h->dim), all[i].v, name, all[i].blocks, all[i].r);
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
    int64_t q = W->heads->q * W->heads->value;
    heads_value(L, W, &W->o_part, "o_part", q * 4);
    lse_part_value(L, W, "lse_part");
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

static void attend_tail(struct lowering *L, const struct layer_cache *c, int t, const struct forward_tile *sum)
{
    struct forward_tile tail = *sum;
    tail.k = &c->tail_k[t];
    tail.v = &c->tail_v[t];
    tail.keys = L->s.cache_block;
    value_get(L, tail.k, 0);
    value_get(L, tail.v, 0);
    emit_attention_forward(L, 0, &tail);
}

static void attend_slot(struct lowering *L, const struct layer_cache *c, int t, int slot, const struct forward_tile *sum)
{
    struct attention_work *W = attention_work(L, sum->weights);
    struct forward_tile whole = *sum;
    whole.o = &W->o_part;
    whole.lse = &W->lse_part;
    whole.k = &c->k[t];
    whole.v = &c->v[t];
    whole.first_key = slot * L->s.cache_block;
    whole.keys = L->s.cache_block;
    L->predicate = cached_predicate(L->m, &L->s, sum->weights->mask, slot);
    value_get(L, whole.k, slot);
    value_get(L, whole.v, slot);
    value_new(L, whole.o, 0);
    value_new(L, whole.lse, 0);
    emit_attention_forward(L, slot + 1, &whole);
    emit_attention_merge(L, sum);
    value_drop(L, whole.k, slot);
    value_drop(L, whole.v, slot);
    L->predicate = 0;
}

void cache_forward(struct lowering *L, const struct block *b, const struct cached_tile *t, const struct forward_tile *f)
{
    const struct layer_cache *c = &L->caches[b->layer];
    if (t->is_first) {
        append(L, &c->tail_k[t->tile], f->k);
        append(L, &c->tail_v[t->tile], f->v);
    }
    const struct forward_tile sum = sum_begin(L, f);
    attend_tail(L, c, t->tile, &sum);
    for (int slot = 0; slot < (int)cached_slots(L->m, &L->s, f->weights->mask); slot++)
        attend_slot(L, c, t->tile, slot, &sum);
    value_drop(L, &c->tail_k[t->tile], 0);
    value_drop(L, &c->tail_v[t->tile], 0);
    sum_end(L, f, &sum);
}
