#include "plan/lower/blocks/block.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

/* --- Rows of slices --- */

/* Returns chunk c of the stream as a share of the chunk's rows, for messages between slices. */
static struct group rows_of_slice(const struct value *whole, const struct value *own, int c)
{
    const struct tile *all = &whole->tiles[c], *share = &own->tiles[c];
    return (struct group){all->row0, all->row1, share->row0, share->row1, LANE_TP};
}

static void gather_rows(struct lowering *L, struct value *whole, struct value *own, int c)
{
    gather_group(L, whole, own, rows_of_slice(whole, own, c), 0);
}

struct value *block_summed(struct lowering *L)
{
    return L->tp > 1 ? &L->own_acc : &L->acc;
}

void block_sum_slices(struct lowering *L, int c)
{
    if (L->tp == 1 || value_on_device(&L->own_acc, c))
        return;
    const struct group g = rows_of_slice(&L->acc, &L->own_acc, c);
    value_new(L, &L->own_acc, c);
    struct op_attrs *a = emit(L, OP_REDUCE_SCATTER, LANE_TP);
    a->comm.n = (g.end - g.first) * L->m->config.dim;
    a->comm.share = (g.shard_end - g.shard_first) * L->m->config.dim;
    a->comm.type = (int32_t)L->s.key.wire;
    a->comm.element = 4;
    arg_read(L, 0, &L->acc, g.first, g.end, TIER_DEVICE);
    arg_write(L, 1, &L->own_acc, g.shard_first, g.shard_end, TIER_DEVICE);
    emit_done(L, 0);
}

static void drop_sum(struct lowering *L, int c)
{
    if (L->tp > 1)
        value_drop(L, &L->own_acc, c);
}

void block_norm(struct lowering *L, const struct block *b, int c)
{
    if (value_on_device(b->normed, c))
        return;
    value_get(L, b->source, c);
    const int gathers = L->tp > 1 && !b->by_rows;
    lower_norm_forward(L, b->norm, gathers ? &L->own_normed : b->normed, b->source, c);
    if (!gathers)
        return;
    gather_rows(L, b->normed, &L->own_normed, c);
    value_drop(L, &L->own_normed, c);
}

/* Moves L->dx, the gradient of a norm to which the branch is added, to dnormed, its other gradient, and leaves zeros. */
static void move_gradient(struct lowering *L, struct value *dnormed, int c)
{
    const int64_t r0 = L->dx.tiles[c].row0, r1 = L->dx.tiles[c].row1;
    value_new(L, &L->moved, c);
    lower_cast_rows(L, &L->moved, r0, F32, &L->dx, r0, L->s.key.dtype, r1 - r0);
    struct op_attrs *a = emit(L, OP_ACCUM, LANE_COMPUTE);
    a->vec.n = (r1 - r0) * L->m->config.dim;
    arg_update(L, 0, dnormed, r0, r1, TIER_DEVICE);
    arg_read(L, 1, &L->moved, r0, r1, TIER_DEVICE);
    emit_done(L, 0);
    value_drop(L, &L->moved, c);
    lower_clear(L, &L->dx, r0, r1);
}

void block_norm_backward(struct lowering *L, const struct block *b, int c)
{
    block_sum_slices(L, c);
    if (b->weights->on_norm)
        move_gradient(L, block_summed(L), c);
    lower_norm_backward(L, b->norm, b->source, block_summed(L), c);
    drop_sum(L, c);
}

struct value *block_whole_gradient(struct lowering *L, const struct block *b, struct value *own)
{
    return L->tp > 1 && !b->by_rows ? &L->all_dx : own;
}

void block_gather_gradient(struct lowering *L, const struct block *b, struct value *own, int c)
{
    if (L->tp > 1 && !b->by_rows)
        gather_rows(L, &L->all_dx, own, c);
}

/* --- Branches --- */

/* Returns the block's branch in storage type, without norm and scale: the sum of L->acc over slices plus the bias
 * of w. */
static struct value *branch(struct lowering *L, const struct block *b, const struct model_linear *w, int c)
{
    int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const int biased = w && w->bias >= 0;
    if (L->s.key.dtype == F32 && !biased)
        return block_summed(L);
    value_new(L, &L->f, c);
    lower_cast_rows(L, &L->f, r0, L->s.key.dtype, block_summed(L), r0, F32, r1 - r0);
    if (biased)
        lower_bias(L, w, &L->f, r0, r1);
    return &L->f;
}

/* Returns the parameter that multiplies the layer's output, for the layer's last block; -1: none. */
static int scalar_of(const struct lowering *L, const struct block *b)
{
    const struct model_layer *layer = &L->m->layers[b->layer];
    return b - b->first == layer->n_blocks - 1 ? layer->scalar : -1;
}

void block_get_gradient(struct lowering *L, const struct block *b, int c)
{
    value_get(L, &L->dx, c);
    if (scalar_of(L, b) >= 0)
        lower_multiply(L, &L->dx, scalar_of(L, b), c);
}

/* Computes out = the norm of the block's input + the block's branch. */
static void add_to_norm(struct lowering *L, const struct block *b, struct value *out, const struct model_linear *w, int c)
{
    struct value *normed = L->tp > 1 ? &L->own_normed : b->normed;
    const int was_there = value_on_device(normed, c);
    if (!was_there)
        lower_norm_forward(L, b->norm, normed, b->source, c);
    lower_add(L, out, normed, block_summed(L), w, c);
    if (!was_there)
        value_drop(L, normed, c);
}

/* Computes out = in + the block's branch. */
static void add(struct lowering *L, const struct block *b, struct value *out, const struct model_linear *w, int c)
{
    const struct model_norm *after = &b->weights->after;
    int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    if (b->weights->on_norm) {
        add_to_norm(L, b, out, w, c);
        return;
    }
    if (after->kind == NORM_NONE) {
        lower_add(L, out, b->in, block_summed(L), w, c);
        return;
    }
    lower_norm_forward(L, after, &L->f_normed, branch(L, b, w, c), c);
    value_drop(L, &L->f, c);
    struct value *delta = &L->f_normed;
    if (L->s.key.dtype != F32) {
        lower_cast_rows(L, block_summed(L), r0, F32, &L->f_normed, r0, L->s.key.dtype, r1 - r0);
        delta = block_summed(L);
    }
    lower_add(L, out, b->in, delta, NULL, c);
    value_drop(L, &L->f_normed, c);
}

void block_add(struct lowering *L, const struct block *b, struct value *out, const struct model_linear *w, int c)
{
    block_sum_slices(L, c);
    add(L, b, out, w, c);
    drop_sum(L, c);
    if (scalar_of(L, b) >= 0)
        lower_multiply(L, out, scalar_of(L, b), c);
}

int block_has_gradient(const struct lowering *L, const struct block *b)
{
    return b->weights->after.kind != NORM_NONE || L->m->config.residual_scale > 0.0;
}

struct value *block_gradient(struct lowering *L, const struct block *b)
{
    return block_has_gradient(L, b) ? &L->df : &L->dx;
}

void block_make_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, int c)
{
    const struct model_norm *after = &b->weights->after;
    int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    if (after->kind == NORM_NONE) {
        lower_scale(L, &L->df, &L->dx, L->m->config.residual_scale, c);
        return;
    }
    block_sum_slices(L, c);
    struct value *f = branch(L, b, w, c), *dy = &L->dx;
    if (L->m->config.residual_scale > 0.0) {
        lower_scale(L, &L->f_normed, &L->dx, L->m->config.residual_scale, c);
        dy = &L->f_normed;
    }
    if (L->s.key.dtype != F32) {
        lower_cast_rows(L, block_summed(L), r0, F32, dy, r0, L->s.key.dtype, r1 - r0);
        dy = block_summed(L);
    }
    lower_norm_gradient(L, after, &L->df, f, dy, c);
    value_drop(L, &L->f_normed, c);
    value_drop(L, &L->f, c);
    drop_sum(L, c);
}

int block_passes_gradient(const struct lowering *L, const struct block *b)
{
    int before = L->pp > 1 || b != b->first || trained(L, b->norm->weight) || trained(L, b->norm->bias);
    for (int u = 0; u < L->m->n_units && !before; u++)
        before = L->m->units[u].layer < b->layer && L->m->units[u].trained_elements > 0;
    return before;
}

void block_drop_stream(struct lowering *L, const struct block *b, int c)
{
    for (const struct block *p = b->first; p <= b; p++)
        value_drop(L, p->in, c);
}
