#include "plan/lower/cached.h"

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
