#include "plan/lower/strategy.h"

void strategy_keep_by_kind(struct strategy *s, const struct model *m, int full, int light)
{
    const int64_t layers = m->config.layers, n_light = model_light_layers(m);
    const int64_t all = (layers - n_light) * full + n_light * light;
    s->placement.kept_chunks = (int)((2 * all + layers) / (2 * layers));
    s->placement.full_more = full - s->placement.kept_chunks;
    s->placement.light_fewer = s->placement.kept_chunks - light;
}

int strategy_share(const struct strategy *s, const struct strategy *like)
{
    return (int)ceil_div(like->placement.kept_chunks * ceil_div(s->rows, s->key.row_chunk),
                         ceil_div(like->rows, like->key.row_chunk));
}

void strategy_place(struct strategy *s, const struct strategy *like)
{
    const struct placement own = s->placement;
    const int64_t chunks = ceil_div(s->rows, s->key.row_chunk), of_like = ceil_div(like->rows, like->key.row_chunk);
    s->placement = like->placement;
    s->placement.device_chunks = (int)(like->placement.device_chunks * chunks / of_like);
    s->placement.kept_chunks = own.kept_chunks;
    s->placement.full_more = s->placement.light_fewer = 0;
    s->placement.prefetch = own.prefetch;
    s->placement.cached = own.cached;
}

enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers)
{
    const enum residency r = strategy_tier(s, class);
    int64_t n = min_i64(s->placement.promoted_layers, layers);
    if (n == 0 || s->placement.promoted_class != class || layer < 0)
        return r;
    return (layer + 1) * n / layers > layer * n / layers ? s->placement.promote_tier : r;
}

int64_t cached_slots(const struct model *m, const struct strategy *s, int mask)
{
    int64_t all = s->cached_tokens / s->cache_block - 1, window = m->mask_window[mask];
    return window > 0 ? min_i64(all, ceil_div(window - 1, s->cache_block)) : all;
}

int cached_latents(const struct strategy *s, const struct attention_shape *shape)
{
    enum { MOST_GPU = 512 }; /* elements of a row that GPUs' kernels attend (attention/cuda_shapes.c) */
    return s->cached_tokens > 0 && shape->kv_latent > 0 &&
           (s->target->capability == 0 || shape->kv_latent + shape->rotated <= MOST_GPU);
}

int64_t cached_per_token(const struct model *m, const struct strategy *s, const struct model_block *b)
{
    const struct attention_shape *shape = b->kind == BLOCK_ATTENTION ? &m->shapes[b->attention.shape] : NULL;
    return shape && cached_latents(s, shape) ? shape->kv_latent + shape->rotated : block_cached_per_token(m, b);
}

int cached_predicate(const struct model *m, const struct strategy *s, int mask, int64_t slot)
{
    int64_t before = 0;
    for (int i = 0; i < mask; i++)
        before += cached_slots(m, s, i);
    return (int)(1 + before + slot);
}

int cached_predicates(const struct model *m, const struct strategy *s)
{
    return cached_predicate(m, s, m->n_masks, 0) - 1;
}
