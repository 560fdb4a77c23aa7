#include "plan/lower/strategy.h"

void strategy_save_by_kind(struct strategy *s, const struct model *m, int full, int light)
{
    const int64_t layers = m->config.layers, n_light = model_light_layers(m);
    const int64_t all = (layers - n_light) * full + n_light * light;
    s->saved_chunks = (int)((2 * all + layers) / (2 * layers));
    s->full_more = full - s->saved_chunks;
    s->window_fewer = s->saved_chunks - light;
}

int strategy_share(const struct strategy *s, const struct strategy *like)
{
    return (int)ceil_div(like->saved_chunks * ceil_div(s->rows, s->row_chunk), ceil_div(like->rows, like->row_chunk));
}

void strategy_place(struct strategy *s, const struct strategy *like)
{
    s->params = like->params;
    s->grads = like->grads;
    s->optim = like->optim;
    s->acts = like->acts;
    s->promoted_class = like->promoted_class;
    s->promote_tier = like->promote_tier;
    s->promoted_layers = like->promoted_layers;
    s->carry = like->carry;
    s->device_layers = like->device_layers;
    s->device_chunks = (int)(like->device_chunks * ceil_div(s->rows, s->row_chunk) / ceil_div(like->rows, like->row_chunk));
    s->keep_every = like->keep_every;
    s->update_on_host = like->update_on_host;
    s->write_depth = like->write_depth;
    s->full_more = s->window_fewer = 0;
}

enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers)
{
    const enum residency r = strategy_tier(s, class);
    int64_t n = min_i64(s->promoted_layers, layers);
    if (n == 0 || s->promoted_class != class || layer < 0)
        return r;
    return (layer + 1) * n / layers > layer * n / layers ? s->promote_tier : r;
}

int64_t cached_slots(const struct model *m, const struct strategy *s, int mask)
{
    int64_t all = s->cached_tokens / s->cache_block - 1, window = m->mask_window[mask];
    return window > 0 ? min_i64(all, ceil_div(window - 1, s->cache_block)) : all;
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
