/* How placements compare, choice by choice. */
#include "plan/search/decisions.h"

int decisions_same_classes(const struct strategy *a, const struct strategy *b)
{
    return a->params == b->params && a->grads == b->grads && a->optim == b->optim && a->acts == b->acts &&
           a->passing == b->passing && a->update_on_host == b->update_on_host && a->device_layers == b->device_layers &&
           a->device_chunks == b->device_chunks && a->nearer == b->nearer &&
           (a->nearer == 0 || (a->nearer_class == b->nearer_class && a->nearer_at == b->nearer_at));
}

int decisions_same_family(const struct strategy *tried, const struct strategy *c)
{
    return tried->acts == c->acts && tried->passing <= c->passing && tried->optim == c->optim &&
           tried->update_on_host == c->update_on_host && (tried->grads == RES_DEVICE) == (c->grads == RES_DEVICE);
}
