#include "plan/lower/blocks/rows.h"

#include "plan/lower/activation.h"
#include "plan/lower/pieces.h"
#include "plan/lower/value.h"
#include "plan/lower/visit.h"

/* Values of joined blocks with inner norms, in storage type: their branches, by place; the normalised ones' sum; one branch's
 * gradient. */
struct joint_work {
    struct value branch[LAYER_BLOCKS], sum[2], gradient;
};

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

static int has_inner_norm(const struct block *b)
{
    return b->weights->inner.kind != NORM_NONE;
}

/* Copies between values of a width: rows of chunk c. */
static void copy(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type, int c)
{
    const int64_t first = x->tiles[c].row0, n = x->tiles[c].row1 - first;
    value_new(L, y, c);
    lower_cast_rows(L, y, first, y_type, x, first, x_type, n);
}

/* Turns L->acc, the branch of the i-th joined block, into the sum of the normalised branches so far. */
static void add_normed(struct lowering *L, const struct block *b, int i, int c)
{
    struct joint_work *J = L->joint;
    const enum dtype T = L->s.key.dtype;
    copy(L, &J->branch[i], T, &L->acc, F32, c);
    value_drop(L, &L->acc, c);
    if (i == 0) {
        lower_norm_forward(L, &b->weights->inner, &J->sum[0], &J->branch[0], c);
        return;
    }
    struct value *before = &J->sum[(i + 1) % 2], *sum = &J->sum[i % 2];
    lower_norm_forward(L, &b->weights->inner, &L->f_normed, &J->branch[i], c);
    copy(L, &L->acc, F32, &L->f_normed, T, c);
    value_drop(L, &L->f_normed, c);
    lower_add(L, sum, before, &L->acc, NULL, c);
    value_drop(L, before, c);
    value_drop(L, &L->acc, c);
}

/* Drops the branches of joined blocks with inner norms. */
static void drop_branches(struct lowering *L, const struct block *b, int c)
{
    for (int i = 0; has_inner_norm(b) && i <= b - first_joined(b); i++)
        value_drop(L, &L->joint->branch[i], c);
}

static void branch(struct lowering *L, const struct block *b, int c)
{
    const struct block *first = first_joined(b);
    const int inner = has_inner_norm(b);
    for (const struct block *p = first; p <= b; p++) {
        p->lowering->rows->branch(L, p, c, !inner && p != first);
        if (inner)
            add_normed(L, p, (int)(p - first), c);
    }
    if (inner) {
        struct value *sum = &L->joint->sum[(b - first) % 2];
        copy(L, &L->acc, F32, sum, L->s.key.dtype, c);
        value_drop(L, sum, c);
    }
}

static void drop_norms(struct lowering *L, const struct block *b, int c)
{
    for (const struct block *p = first_joined(b); p <= b; p++)
        value_drop(L, p->normed, c);
}

/* Drops the values that a chunk's visit used. */
static void drop(struct lowering *L, const struct block *b, int c)
{
    block_drop_stream(L, b, c);
    drop_norms(L, b, c);
    for (const struct block *p = first_joined(b); p <= b; p++)
        p->lowering->rows->drop(L, p, c);
    drop_branches(L, b, c);
    value_drop(L, &L->acc, c);
}

void rows_output(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    value_get(L, b->in, c);
    fetch(L, b, c);
    drop_norms(L, b, c);
    branch(L, b, c);
    drop_branches(L, b, c);
    block_add(L, b, v, b->lowering->rows->last(b), c);
    drop(L, b, c);
}

/* Computes the gradient of the branch, which is first computed again if it is normalised. */
static void make_gradient(struct lowering *L, const struct block *b, int c)
{
    if (b->weights->after.kind != NORM_NONE)
        branch(L, b, c);
    block_make_gradient(L, b, b->lowering->rows->last(b), c);
    value_drop(L, &L->acc, c);
}

/* Computes the gradients of joined blocks with inner norms, from df, the gradient of their sum, and adds those of the stream to L->dx. */
static void inner_backward(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct block *first = first_joined(b);
    struct joint_work *J = L->joint;
    for (const struct block *p = first; p <= b; p++) {
        copy(L, &L->acc, F32, df, L->s.key.dtype, c);
        lower_norm_gradient(L, &p->weights->inner, &J->gradient, &J->branch[p - first], &L->acc, c);
        value_drop(L, &L->acc, c);
        p->lowering->rows->gradient(L, p, &J->gradient, c, 0);
        value_drop(L, &J->gradient, c);
        lower_norm_backward(L, p->norm, p->source, &L->acc, c);
        value_drop(L, &L->acc, c);
    }
}

/* Computes the gradients of joined blocks that share their norm, and that of the norm's output in L->acc. */
static void joined_backward(struct lowering *L, const struct block *b, int c)
{
    const struct block *first = first_joined(b);
    block_gather_gradient(L, b, c);
    for (const struct block *p = first; p <= b; p++)
        p->lowering->rows->gradient(L, p, block_whole_gradient(L, b), c, p != first);
    if (L->tp > 1)
        value_forget(&L->all_dx, c);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    if (df != &L->dx)
        make_gradient(L, b, c);
    if (has_inner_norm(b))
        inner_backward(L, b, df, c);
    else
        joined_backward(L, b, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    if (!has_inner_norm(b))
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

/* Tells whether the model has joined blocks with inner norms. */
static int has_inner_norms(const struct lowering *L)
{
    for (int l = 0; l < (int)L->m->config.layers; l++)
        for (int i = 0; i < L->layers[l].n_blocks; i++)
            if (has_inner_norm(&L->layers[l].blocks[i]))
                return 1;
    return 0;
}

static void create(struct lowering *L, struct value *v, const char *name, int number)
{
    activation_of_work(L, RES_NONE, number, &(struct activation){v, name, L->m->config.dim, L->s.key.dtype, CHUNKS});
}

void rows_values(struct lowering *L)
{
    if (!has_inner_norms(L))
        return;
    struct joint_work *J = L->joint = memory_new(L, 1, sizeof *J);
    if (!J)
        return;
    for (int i = 0; i < LAYER_BLOCKS; i++)
        create(L, &J->branch[i], "branch", i);
    for (int i = 0; i < 2; i++)
        create(L, &J->sum[i], "sum", i);
    create(L, &J->gradient, "dbranch", -1);
}
