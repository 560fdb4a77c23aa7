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

void rows_begin(struct lowering *L, const struct block *b, int c, int accumulate)
{
    if (!accumulate)
        value_new(L, b->acc, c);
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

/* Forgets chunk c of the sums, before and after they are summed over slices. */
static void drop_sums(struct lowering *L, int c)
{
    value_drop(L, &L->acc, c);
    if (L->tp > 1)
        value_drop(L, &L->own_acc, c);
}

/* Turns the branch of the i-th joined block into the sum of the normalised branches so far. */
static void add_normed(struct lowering *L, const struct block *b, int i, int c)
{
    struct joint_work *J = L->joint;
    struct value *acc = block_summed(L);
    const enum dtype T = L->s.key.dtype;
    block_sum_slices(L, c);
    copy(L, &J->branch[i], T, acc, F32, c);
    drop_sums(L, c);
    if (i == 0) {
        lower_norm_forward(L, &b->weights->inner, &J->sum[0], &J->branch[0], c);
        return;
    }
    struct value *before = &J->sum[(i + 1) % 2], *sum = &J->sum[i % 2];
    lower_norm_forward(L, &b->weights->inner, &L->f_normed, &J->branch[i], c);
    copy(L, acc, F32, &L->f_normed, T, c);
    value_drop(L, &L->f_normed, c);
    lower_add(L, sum, before, acc, NULL, c);
    value_drop(L, before, c);
    value_drop(L, acc, c);
}

/* Drops the branches of joined blocks with inner norms. */
static void drop_branches(struct lowering *L, const struct block *b, int c)
{
    for (int i = 0; has_inner_norm(b) && i <= b - first_joined(b); i++)
        value_drop(L, &L->joint->branch[i], c);
}

/* Lists b and the blocks that it is joined to as they add to a sum: first those that slices cut, then those by rows. Returns their
 * number. */
static int list_turns(const struct block *b, const struct block *turn[LAYER_BLOCKS])
{
    int n = 0;
    for (int by_rows = 0; by_rows < 2; by_rows++)
        for (const struct block *p = first_joined(b); p <= b; p++)
            if (p->by_rows == by_rows)
                turn[n++] = p;
    return n;
}

/* Sums what blocks that slices cut have added up, before the first block by rows adds to it. */
static void begin_turn(struct lowering *L, const struct block *const *turn, int i, int c)
{
    if (i == 0 || turn[i]->by_rows == turn[i - 1]->by_rows)
        return;
    block_sum_slices(L, c);
    value_drop(L, &L->acc, c);
}

/* Computes the normalised branches' sum. */
static void inner_branch(struct lowering *L, const struct block *b, int c)
{
    const struct block *first = first_joined(b);
    struct value *sum = &L->joint->sum[(b - first) % 2];
    for (const struct block *p = first; p <= b; p++) {
        p->lowering->rows->branch(L, p, c, 0);
        add_normed(L, p, (int)(p - first), c);
    }
    copy(L, block_summed(L), F32, sum, L->s.key.dtype, c);
    value_drop(L, sum, c);
}

static void branch(struct lowering *L, const struct block *b, int c)
{
    const struct block *turn[LAYER_BLOCKS];
    const int n = list_turns(b, turn);
    if (has_inner_norm(b)) {
        inner_branch(L, b, c);
        return;
    }
    for (int i = 0; i < n; i++) {
        begin_turn(L, turn, i, c);
        turn[i]->lowering->rows->branch(L, turn[i], c, i > 0);
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
    drop_sums(L, c);
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
    drop_sums(L, c);
}

/* Computes the gradients of a block from df, that of its branch, and that of its norm's output in p->acc. */
static void gradient(struct lowering *L, const struct block *p, struct value *df, int c, int accumulate)
{
    struct value *whole = block_whole_gradient(L, p, df);
    block_gather_gradient(L, p, df, c);
    p->lowering->rows->gradient(L, p, whole, c, accumulate);
    if (whole != df)
        value_forget(whole, c);
}

/* Computes the gradients of joined blocks with inner norms, from df, the gradient of their sum, and adds those of the stream to L->dx. */
static void inner_backward(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct block *first = first_joined(b);
    struct joint_work *J = L->joint;
    struct value *dy = block_summed(L);
    for (const struct block *p = first; p <= b; p++) {
        copy(L, dy, F32, df, L->s.key.dtype, c);
        lower_norm_gradient(L, &p->weights->inner, &J->gradient, &J->branch[p - first], dy, c);
        value_drop(L, dy, c);
        gradient(L, p, &J->gradient, c, 0);
        value_drop(L, &J->gradient, c);
        block_norm_backward(L, p, c);
        drop_sums(L, c);
    }
}

/* Computes the gradients of joined blocks that share their norm, and the sum of their norm's. */
static void joined_backward(struct lowering *L, const struct block *b, int c)
{
    const struct block *turn[LAYER_BLOCKS];
    const int n = list_turns(b, turn);
    for (int i = 0; i < n; i++) {
        begin_turn(L, turn, i, c);
        gradient(L, turn[i], block_gradient(L, b), c, i > 0);
    }
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
    activation_of_work(L, RES_NONE, number, &(struct activation){v, name, L->m->config.dim, L->s.key.dtype, STREAM});
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
