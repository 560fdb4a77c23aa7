#include "plan/lower/strategy.h"

enum residency strategy_residency(const struct strategy *s, enum tensor_class class, int layer, int layers)
{
    const enum residency r = strategy_tier(s, class);
    int64_t n = min_i64(s->nearer, layers);
    if (n == 0 || s->nearer_class != class || layer < 0)
        return r;
    return (layer + 1) * n / layers > layer * n / layers ? s->nearer_at : r;
}
