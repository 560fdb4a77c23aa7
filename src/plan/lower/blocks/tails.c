/* Convolutions of a block, and their last rows between ranks. */
#include "plan/lower/blocks/tails.h"

#include "plan/lower/emit.h"
#include "plan/lower/groups.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

struct op_attrs *convolution_emit(struct lowering *L, const struct convolution *k, enum op_kind op, int64_t rows)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->conv.rows = rows;
    a->conv.cols = a->conv.ld = (int32_t)k->columns;
    a->conv.width = (int32_t)k->width;
    a->conv.silu = k->silu;
    a->conv.dtype = (int32_t)L->s.key.dtype;
    return a;
}

int64_t convolution_tail(const struct convolution *k, enum dtype type)
{
    return (k->width - 1) * k->columns * dtype_size(type);
}

/* Appends the weights, one parameter or several that lie one behind another. */
static void arg_weights(struct lowering *L, int arg, const struct convolution *k)
{
    if (k->weight >= 0)
        arg_param_part(L, arg, k->weight, 0, k->columns * k->width);
}

static void arg_bias_of(struct lowering *L, int arg, const struct convolution *k)
{
    if (k->bias >= 0)
        arg_param(L, arg, k->bias);
}

void convolution_forward(struct lowering *L, const struct convolution *k, struct value *y, struct value *x, struct passing *tail,
                         int c)
{
    const int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    passing_get_before(L, tail, c);
    value_new(L, y, c);
    const int after = passing_begin_after(L, tail, c);
    convolution_emit(L, k, OP_CONV, r1 - r0);
    arg_write(L, 0, y, r0, r1, DEV);
    if (after)
        passing_arg_after(L, 1, tail, c);
    arg_read(L, 2, x, r0, r1, DEV);
    arg_weights(L, 3, k);
    arg_bias_of(L, 4, k);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    passing_arg_before(L, 6, tail, c);
    emit_done(L, 0);
    if (after)
        passing_end_after(L, tail, c);
}

void convolution_backward(struct lowering *L, const struct convolution *k, struct value *x, struct value *dy, struct value *dtail,
                          int64_t row, struct passing *tail, int c)
{
    const int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    struct op_attrs *a = convolution_emit(L, k, OP_CONV_GRAD, r1 - r0);
    arg_update(L, 0, x, r0, r1, DEV);
    if (k->width > 1)
        arg_update(L, 1, dtail, row, row + 1, DEV);
    if (trained(L, k->weight))
        a->conv.accumulate = arg_grad(L, 2, k->weight, 0, k->columns * k->width);
    if (trained(L, k->bias))
        a->conv.accumulate = arg_grad(L, 3, k->bias, 0, param_of(L, k->bias)->elements);
    arg_read(L, 4, dy, r0, r1, DEV);
    arg_weights(L, 5, k);
    arg_bias_of(L, 6, k);
    arg_read(L, 7, &L->links, r0, r1, DEV);
    passing_arg_before(L, 8, tail, c);
    emit_done(L, 0);
}

/* --- Between ranks --- */

enum lane pieces_lane(const struct lowering *L)
{
    return mesh_lane_of_sequence(&L->s.key.mesh);
}

void pieces_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_WORK, L->pieces * rows, row_bytes, rows, RES_NONE);
    v->full = 1;
}

void pieces_new(struct lowering *L, struct value *v)
{
    if (v->full)
        value_open_full(L, v);
    for (int i = 0; i < v->n_tiles; i++)
        value_new(L, v, i);
}

void pieces_fill(struct lowering *L, struct value *v, int64_t row0, int64_t row1)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = (row1 - row0) * v->row_bytes;
    arg_write(L, 0, v, row0, row1, DEV);
    emit_done(L, 0);
}

void tails_create(struct lowering *L, struct tails *t, const struct convolution *k)
{
    const enum dtype T = L->s.key.dtype;
    const int64_t rows = k->width - 1, all = (int64_t)L->ring * L->ulysses * L->pieces, bytes = rows * k->columns * dtype_size(T),
                  grad = rows * k->columns * 4;
    t->rows = rows;
    if (rows == 0)
        return;
    pieces_value(L, &t->tails, "piece.tails", 1, bytes);
    pieces_value(L, &t->dtails, "piece.dtails", 1, grad);
    pieces_value(L, &t->dtails_after, "piece.dtails_after", 1, grad);
    value_create(L, &t->all_tails, "piece.all_tails", CLASS_WORK, all, bytes, all, RES_NONE);
    value_create(L, &t->all_dtails, "piece.all_dtails", CLASS_WORK, all, grad, all, RES_NONE);
    value_create(L, &t->first, "piece.first", CLASS_WORK, rows, k->columns * dtype_size(T), rows, RES_NONE);
    value_create(L, &t->rest, "piece.rest", CLASS_WORK, rows, k->columns * dtype_size(T), rows, RES_NONE);
}

void tails_create_before(struct lowering *L, const struct block *b, struct passing *tail, const struct convolution *k)
{
    const int64_t bytes = convolution_tail(k, L->s.key.dtype);
    if (bytes == 0)
        return;
    passing_kept(L, b, &tail->before, "entering_tail", L->pieces, bytes, L->pieces, RES_DEVICE);
    tail->rows = tail->stride = 1;
}

/* Gathers the rows `own` of all ranks' pieces, and copies to each of this rank's pieces the row of a neighbouring piece. which: 0: of
 * the piece before, 1: of the piece after. */
static void gather_neighbours(struct lowering *L, struct value *own, struct value *all, struct value *to, enum dtype type,
                              int which)
{
    const int64_t pieces = all->rows, first = pieces + which * L->pieces;
    gather_group(L, all, own, (struct group){0, pieces, 0, L->pieces, pieces_lane(L)}, 0);
    value_close_full(L, own);
    pieces_new(L, to);
    struct op_attrs *a = emit(L, OP_EMBED, LANE_COMPUTE);
    a->embed.rows = L->pieces;
    a->embed.dim = own->row_bytes / dtype_size(type);
    a->embed.vocab = pieces;
    a->embed.dtype = type;
    arg_write(L, 0, to, 0, L->pieces, DEV);
    arg_read(L, 1, all, 0, pieces, DEV);
    arg_read(L, 2, &L->order, first, first + L->pieces, DEV);
    emit_done(L, 0);
    value_drop(L, all, 0);
}

void tails_begin(struct lowering *L, struct tails *t)
{
    if (t->rows > 0)
        pieces_new(L, &t->tails);
}

void tails_take(struct lowering *L, struct tails *t, const struct convolution *k, struct value *x, int c)
{
    const int64_t end = x->tiles[c].row1, n = t->rows;
    if (n == 0)
        return;
    value_new(L, &t->rest, 0);
    convolution_emit(L, k, OP_CONV, n);
    arg_write(L, 0, &t->rest, 0, n, DEV);
    arg_write(L, 1, &t->tails, passing_piece(L, c), passing_piece(L, c) + 1, DEV);
    arg_read(L, 2, x, end - n, end, DEV);
    arg_weights(L, 3, k);
    arg_bias_of(L, 4, k);
    arg_read(L, 5, &L->links, end - n, end, DEV);
    emit_done(L, 0);
    value_drop(L, &t->rest, 0);
}

void tails_exchange(struct lowering *L, struct tails *t, struct passing *tail)
{
    if (t->rows == 0)
        return;
    gather_neighbours(L, &t->tails, &t->all_tails, &tail->before, L->s.key.dtype, 0);
    value_put(L, &tail->before, 0);
    value_drop(L, &tail->before, 0);
}

void tails_begin_backward(struct lowering *L, struct tails *t)
{
    if (t->rows > 0)
        pieces_new(L, &t->dtails);
}

void tails_gradient(struct lowering *L, struct tails *t, const struct convolution *k, struct value *x, struct value *dy,
                    struct passing *tail, int c)
{
    const enum dtype T = L->s.key.dtype;
    const int64_t r0 = x->tiles[c].row0, n = t->rows;
    const int piece = passing_piece(L, c);
    if (n == 0)
        return;
    value_new(L, &t->first, 0);
    lower_cast_rows(L, &t->first, 0, T, x, r0, T, n);
    pieces_fill(L, &t->dtails, piece, piece + 1);
    convolution_emit(L, k, OP_CONV_GRAD, n);
    arg_update(L, 0, &t->first, 0, n, DEV);
    arg_update(L, 1, &t->dtails, piece, piece + 1, DEV);
    arg_read(L, 4, dy, r0, r0 + n, DEV);
    arg_weights(L, 5, k);
    arg_bias_of(L, 6, k);
    arg_read(L, 7, &L->links, r0, r0 + n, DEV);
    passing_arg_before(L, 8, tail, c);
    emit_done(L, 0);
    value_drop(L, &t->first, 0);
}

void tails_exchange_backward(struct lowering *L, struct tails *t)
{
    if (t->rows > 0)
        gather_neighbours(L, &t->dtails, &t->all_dtails, &t->dtails_after, F32, 1);
}

void tails_end_backward(struct lowering *L, struct tails *t)
{
    if (t->rows > 0)
        value_close_full(L, &t->dtails_after);
}
