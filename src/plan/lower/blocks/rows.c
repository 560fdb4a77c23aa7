#include "plan/lower/blocks/rows.h"

#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

/* Returns the first of the blocks that b is joined to; b itself if it is not joined. */
static const struct block *first_joined(const struct block *b)
{
    while (b->weights->joined)
        b--;
    return b;
}

void rows_begin(struct lowering *L, int c, int accumulate)
{
    if (!accumulate)
        value_new(L, &L->acc, c);
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    for (const struct block *p = first_joined(b); p <= b; p++)
        p->lowering->rows->fetch(L, p, c);
}

static void branch(struct lowering *L, const struct block *b, int c)
{
    const struct block *first = first_joined(b);
    for (const struct block *p = first; p <= b; p++)
        p->lowering->rows->branch(L, p, c, p != first);
}

/* Drops the values that a chunk's visit used. */
static void drop(struct lowering *L, const struct block *b, int c)
{
    block_drop_stream(L, b, c);
    value_drop(L, b->normed, c);
    for (const struct block *p = first_joined(b); p <= b; p++)
        p->lowering->rows->drop(L, p, c);
    value_drop(L, &L->acc, c);
}

void rows_output(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    value_get(L, b->in, c);
    fetch(L, b, c);
    value_drop(L, b->normed, c);
    branch(L, b, c);
    block_add(L, b, v, b->lowering->rows->last(b), c);
    drop(L, b, c);
}

/* Makes the gradient of the branch; a normalised branch is computed again first. */
static void make_gradient(struct lowering *L, const struct block *b, int c)
{
    if (b->weights->after.kind != NORM_NONE)
        branch(L, b, c);
    block_make_gradient(L, b, b->lowering->rows->last(b), c);
    value_drop(L, &L->acc, c);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct block *first = first_joined(b);
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    if (df != &L->dx)
        make_gradient(L, b, c);
    block_gather_gradient(L, b, c);
    for (const struct block *p = first; p <= b; p++)
        p->lowering->rows->gradient(L, p, block_whole_gradient(L, b), c, p != first);
    if (L->tp > 1)
        value_forget(&L->all_dx, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    block_norm_backward(L, b, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop(L, b, c);
}

void rows_backward(struct lowering *L, struct block *b)
{
    for (int c = 0; c < L->n_chunks; c++)
        backward_chunk(L, b, c);
}
