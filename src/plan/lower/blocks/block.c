#include "plan/lower/blocks/block.h"

#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

void block_norm(struct lowering *L, const struct block *b, int c)
{
    if (value_on_device(b->normed, c))
        return;
    value_get(L, b->in, c);
    lower_norm_forward(L, b->norm, b->normed, b->in, c);
}

void block_drop_stream(struct lowering *L, const struct block *b, int c)
{
    for (const struct block *p = b->first; p <= b; p++)
        value_drop(L, p->in, c);
}
