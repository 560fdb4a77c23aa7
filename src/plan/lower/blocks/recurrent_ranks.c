/* Recurrences of sequences that ranks share: states pass from piece to piece, wherever the pieces lie.
 *
 * Forward: the last rows before each piece's convolution come from all ranks; each rank summarises its pieces (SCAN_SUM); an all-to-all
 * brings the summaries of some heads of all pieces to each rank, which finds the states between the pieces in the order of the tokens
 * (SCAN_FOLD); these return, and the chunks follow as on one rank. Backward likewise: the gradients of states that come from a piece's
 * own outputs, the fold with the same moves, then the scan's gradients; the convolution's last, which need the rows after each piece. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/recurrent.h"
#include "plan/lower/emit.h"
#include "plan/lower/groups.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#include <stdio.h>

#define DEV TIER_DEVICE

/* Values that the layers share. Values of heads have `heads` rows for each piece of the rank, or of all heads that it folds for one of
 * its own: `share` heads of each member in turn. Rows beyond the model's heads are zero.
 *
 * move, own: summaries of the rank's pieces; theirs: `own` of the heads that this rank folds, of all members' pieces; folded: the states
 * before them, or the gradients of those after them; dafter: these gradients for the rank's own pieces. tails: the last rows of the
 * rank's pieces, all_tails: those of all ranks; dtails: gradients of the rows before the pieces, dtails_after: of each piece's last
 * rows, from the piece after it. first, rest: rows of a convolution that nobody else reads. dqkv, dz, dab, dheads: gradients between
 * the passes, of the convolution's output, of z, of ab and of heads' outputs. */
struct recurrent_ranks {
    int members;
    int64_t share, heads;
    struct value move, own, theirs, folded, dafter;
    struct value tails, all_tails, dtails, all_dtails, dtails_after, first, rest;
    struct value dqkv, dz, dab, dheads;
};

static struct recurrent_ranks *ranks_of(const struct lowering *L)
{
    return recurrent_work(L)->ranks;
}

/* Returns the lane of the ranks that share a sequence. Meshes on which no lane is theirs alone are refused (mesh.c). */
static enum lane lane_of(const struct lowering *L)
{
    return L->ring == 1 ? LANE_ULYSSES : L->ulysses == 1 ? LANE_RING : LANE_WORLD;
}

/* Returns the first row of a piece in values of heads. */
static int64_t heads_row(const struct lowering *L, int piece)
{
    return piece * ranks_of(L)->heads;
}

static int64_t tail_rows(const struct recurrent_block *r)
{
    return r->width - 1;
}

/* --- Values --- */

static void new_tiles(struct lowering *L, struct value *v)
{
    if (v->full)
        value_open_full(L, v);
    for (int i = 0; i < v->n_tiles; i++)
        value_new(L, v, i);
}

static void fill(struct lowering *L, struct value *v, int64_t row0, int64_t row1)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = (row1 - row0) * v->row_bytes;
    arg_write(L, 0, v, row0, row1, DEV);
    emit_done(L, 0);
}

/* Begins a value of the rank's pieces, of which the rows beyond the model's heads are zero. */
static void new_heads(struct lowering *L, const struct block *b, struct value *v)
{
    const int64_t heads = recurrent_of(b)->heads;
    new_tiles(L, v);
    for (int i = 0; i < L->pieces && heads < ranks_of(L)->heads; i++)
        fill(L, v, heads_row(L, i) + heads, heads_row(L, i + 1));
}

/* Copies chunk c of a value, to be read in another pass. */
static void keep_chunk(struct lowering *L, struct value *to, struct value *from, int c)
{
    const enum dtype T = L->s.key.dtype;
    const int64_t r0 = to->tiles[c].row0, r1 = to->tiles[c].row1;
    value_new(L, to, c);
    lower_cast_rows(L, to, r0, T, from, r0, T, r1 - r0);
    value_put(L, to, c);
    value_drop(L, to, c);
}

/* --- Messages --- */

/* Exchanges the rows of a piece: of all heads of the rank's own, of some heads of all members'. */
static void exchange(struct lowering *L, struct value *from, struct value *to, int piece)
{
    struct op_attrs *a = emit(L, OP_ALL_TO_ALL, lane_of(L));
    const int64_t row0 = heads_row(L, piece), row1 = heads_row(L, piece + 1);
    a->comm.element = 4;
    a->comm.n = (row1 - row0) * from->row_bytes / 4;
    a->comm.share = a->comm.n / ranks_of(L)->members;
    arg_read(L, 0, from, row0, row1, DEV);
    arg_write(L, 1, to, row0, row1, DEV);
    emit_done(L, 0);
}

static void exchange_all(struct lowering *L, struct value *from, struct value *to)
{
    new_tiles(L, to);
    for (int i = 0; i < L->pieces; i++)
        exchange(L, from, to, i);
    value_close_full(L, from);
}

/* Finds the states before all pieces, or (transposed) the gradients of those after them, of the heads that this rank folds. */
static void fold(struct lowering *L, const struct block *b, int transposed)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t pieces = (int64_t)R->members * L->pieces;
    new_tiles(L, &R->folded);
    struct op_attrs *a = emit(L, OP_SCAN_FOLD, LANE_COMPUTE);
    a->fold.pieces = pieces;
    a->fold.heads = (int32_t)R->share;
    a->fold.key_dim = (int32_t)r->key_dim;
    a->fold.value_dim = (int32_t)r->value_dim;
    a->fold.transposed = transposed;
    arg_write(L, 0, &R->folded, 0, R->folded.rows, DEV);
    arg_read(L, 1, &v->moves, 0, v->moves.rows, DEV);
    arg_read(L, 2, &R->theirs, 0, R->theirs.rows, DEV);
    arg_read(L, 3, &L->order, 0, pieces, DEV);
    emit_done(L, 0);
    value_close_full(L, &R->theirs);
}

/* Gathers a row of each piece from all ranks, and takes for each of the rank's own pieces that of its neighbour: which 0: the piece
 * before it, 1: the one after it. */
static void gather_neighbours(struct lowering *L, struct value *own, struct value *all, struct value *to, enum dtype type,
                              int which)
{
    const int64_t pieces = all->rows, first = pieces + which * L->pieces;
    gather_group(L, all, own, (struct group){0, pieces, 0, L->pieces, lane_of(L)}, 0);
    value_close_full(L, own);
    new_tiles(L, to);
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

/* --- Forward --- */

/* Ends a visit of a chunk that is visited again in the forward pass. */
static void pause(struct lowering *L, const struct block *b, int c)
{
    recurrent_drop_values(L, b, c);
    value_pause(L, b->source, c);
}

static void arg_bias(struct lowering *L, int arg, const struct recurrent_block *r)
{
    if (r->conv_bias >= 0)
        arg_param(L, arg, r->conv_bias);
}

/* Finds the rows before each of the rank's pieces. */
static void find_tails(struct lowering *L, const struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t n = tail_rows(r);
    new_tiles(L, &R->tails);
    for (int c = 0; c < L->n_chunks; c++) {
        const int64_t end = v->pre.tiles[c].row1;
        if (!recurrent_ends_piece(L, c))
            continue;
        value_get(L, &v->pre, c);
        value_new(L, &R->rest, 0);
        recurrent_emit_conv(L, b, OP_CONV, n);
        arg_write(L, 0, &R->rest, 0, n, DEV);
        arg_write(L, 1, &R->tails, recurrent_piece(L, c), recurrent_piece(L, c) + 1, DEV);
        arg_read(L, 2, &v->pre, end - n, end, DEV);
        arg_param(L, 3, r->conv);
        arg_bias(L, 4, r);
        arg_read(L, 5, &L->links, end - n, end, DEV);
        emit_done(L, 0);
        value_drop(L, &R->rest, 0);
        value_drop(L, &v->pre, c);
        value_drop(L, b->normed, c);
        value_pause(L, b->source, c);
    }
    gather_neighbours(L, &R->tails, &R->all_tails, &v->tail.before, L->s.key.dtype, 0);
    value_put(L, &v->tail.before, 0);
    value_drop(L, &v->tail.before, 0);
}

/* Adds chunk c to its piece's summary. */
static void sum_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    struct value *const to[] = {&W->ranks->move, &W->ranks->own};
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1, row0 = heads_row(L, recurrent_piece(L, c));
    struct op_attrs *a = recurrent_emit_scan(L, b, OP_SCAN_SUM, r1 - r0);
    a->scan.accumulate = !recurrent_begins_piece(L, c);
    for (int i = 0; i < 2; i++)
        (a->scan.accumulate ? arg_update : arg_write)(L, i, to[i], row0, row0 + recurrent_of(b)->heads, DEV);
    arg_read(L, 2, &W->qkv, r0, r1, DEV);
    arg_read(L, 3, &W->g, r0, r1, DEV);
    arg_read(L, 4, &W->beta, r0, r1, DEV);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    emit_done(L, 0);
}

static void sum_pieces(struct lowering *L, const struct block *b)
{
    struct recurrent_layer *v = b->values;
    new_heads(L, b, &ranks_of(L)->move);
    new_heads(L, b, &ranks_of(L)->own);
    for (int c = 0; c < L->n_chunks; c++) {
        value_get(L, &v->pre, c);
        value_get(L, &v->ab, c);
        recurrent_convolve(L, b, c);
        sum_chunk(L, b, c);
        pause(L, b, c);
    }
}

void recurrent_ranks_forward(struct lowering *L, struct block *b)
{
    struct recurrent_layer *v = b->values;
    if (!recurrent_is_shared(L))
        return;
    struct recurrent_ranks *R = ranks_of(L);
    find_tails(L, b);
    sum_pieces(L, b);
    exchange_all(L, &R->move, &v->moves);
    exchange_all(L, &R->own, &R->theirs);
    fold(L, b, 0);
    for (int i = 0; i < v->moves.n_tiles; i++)
        value_put(L, &v->moves, i);
    value_close_full(L, &v->moves);
    for (int i = 0; i < L->pieces; i++) {
        value_new(L, &v->state.before, i);
        exchange(L, &R->folded, &v->state.before, i);
        value_put(L, &v->state.before, i);
        value_drop(L, &v->state.before, i);
    }
    value_close_full(L, &R->folded);
}

/* --- Backward --- */

/* Adds chunk c, whose outputs have the gradient dout, to the gradient of the state before it, which begins with the piece's end. */
static void sum_gradient(struct lowering *L, const struct block *b, struct value *dout, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1, row0 = heads_row(L, recurrent_piece(L, c));
    const int64_t row1 = row0 + recurrent_of(b)->heads;
    if (recurrent_ends_piece(L, c))
        fill(L, &W->ranks->own, row0, row1);
    recurrent_emit_scan(L, b, OP_SCAN_GRAD_SUM, r1 - r0);
    arg_update(L, 0, &W->ranks->own, row0, row1, DEV);
    arg_read(L, 1, &W->qkv, r0, r1, DEV);
    arg_read(L, 2, &W->g, r0, r1, DEV);
    arg_read(L, 3, &W->beta, r0, r1, DEV);
    arg_read(L, 4, dout, r0, r1, DEV);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    emit_done(L, 0);
}

/* Makes the gradient of heads' outputs of chunk c, dheads, and that of z. */
static void outputs_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_put(L, &L->dx, c);
    value_get(L, &v->pre, c);
    value_get(L, &v->z, c);
    value_get(L, &v->ab, c);
    recurrent_scan(L, b, c);
    if (df != &L->dx) {
        if (b->weights->after.kind != NORM_NONE)
            recurrent_branch(L, b, c);
        block_make_gradient(L, b, &recurrent_of(b)->out, c);
        value_drop(L, &L->acc, c);
    }
    struct value *dout = recurrent_gates_backward(L, b, df, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    value_drop(L, &L->dx, c);
    sum_gradient(L, b, dout, c);
    keep_chunk(L, &R->dheads, dout, c);
    keep_chunk(L, &R->dz, &v->z, c);
    value_drop(L, dout, c);
    recurrent_drop(L, b, c);
}

/* Makes the gradients of the states after the rank's pieces. */
static void pass_gradients(struct lowering *L, const struct block *b)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    exchange_all(L, &R->own, &R->theirs);
    value_open_full(L, &v->moves);
    for (int i = 0; i < v->moves.n_tiles; i++)
        value_get(L, &v->moves, i);
    fold(L, b, 1);
    value_close_full(L, &v->moves);
    exchange_all(L, &R->folded, &R->dafter);
}

/* Computes the gradient of the rows before the piece that begins with chunk c, whose qkv is its gradient. The convolution's first rows
 * alone read them. */
static void tail_gradient(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    const enum dtype T = L->s.key.dtype;
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t r0 = v->pre.tiles[c].row0, n = tail_rows(r);
    const int piece = recurrent_piece(L, c);
    value_new(L, &R->first, 0);
    lower_cast_rows(L, &R->first, 0, T, &v->pre, r0, T, n);
    fill(L, &R->dtails, piece, piece + 1);
    recurrent_emit_conv(L, b, OP_CONV_GRAD, n);
    arg_update(L, 0, &R->first, 0, n, DEV);
    arg_update(L, 1, &R->dtails, piece, piece + 1, DEV);
    arg_read(L, 4, &recurrent_work(L)->qkv, r0, r0 + n, DEV);
    arg_param(L, 5, r->conv);
    arg_bias(L, 6, r);
    arg_read(L, 7, &L->links, r0, r0 + n, DEV);
    recurrent_arg_before(L, 8, &v->tail, c);
    emit_done(L, 0);
    value_drop(L, &R->first, 0);
}

/* Makes the gradients of the convolution's output and of ab for chunk c. */
static void scan_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t row0 = heads_row(L, recurrent_piece(L, c));
    value_get(L, &v->pre, c);
    value_get(L, &v->ab, c);
    value_get(L, &R->dheads, c);
    recurrent_convolve(L, b, c);
    recurrent_get_before(L, &v->state, c);
    recurrent_scan_backward(L, b, &R->dheads, &R->dafter, row0, row0 + recurrent_of(b)->heads, c);
    recurrent_decay_backward(L, b, c);
    if (recurrent_begins_piece(L, c))
        tail_gradient(L, b, c);
    keep_chunk(L, &R->dqkv, &recurrent_work(L)->qkv, c);
    keep_chunk(L, &R->dab, &v->ab, c);
    recurrent_drop(L, b, c);
}

static void inputs_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    struct value *const kept[] = {&R->dqkv, &R->dz, &R->dab};
    value_get(L, &L->dx, c);
    value_get(L, b->source, c);
    value_get(L, &v->pre, c);
    recurrent_get_before(L, &v->tail, c);
    for (int i = 0; i < 3; i++)
        value_get(L, kept[i], c);
    recurrent_conv_backward(L, b, &R->dqkv, &R->dtails_after, recurrent_piece(L, c), c);
    recurrent_inputs_backward(L, b, &(struct recurrent_gradients){&v->pre, &R->dz, &R->dab}, c);
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    for (int i = 0; i < 3; i++)
        value_drop(L, kept[i], c);
    recurrent_drop(L, b, c);
}

void recurrent_ranks_backward(struct lowering *L, struct block *b)
{
    struct recurrent_ranks *R = ranks_of(L);
    new_heads(L, b, &R->own);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        outputs_chunk(L, b, c);
    pass_gradients(L, b);
    new_tiles(L, &R->dtails);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        scan_chunk(L, b, c);
    value_close_full(L, &R->dafter);
    gather_neighbours(L, &R->dtails, &R->all_dtails, &R->dtails_after, F32, 1);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        inputs_chunk(L, b, c);
    value_close_full(L, &R->dtails_after);
}

/* --- Creation --- */

/* Creates a value of heads in the rank's pieces, whose rows beyond the model's heads are tiles of their own. */
static void heads_value(struct lowering *L, struct value *v, const char *name, int64_t heads, int64_t row_bytes)
{
    const int64_t all = ranks_of(L)->heads;
    int64_t *cuts = memory_new(L, 2 * L->pieces + 1, sizeof *cuts);
    int n = 0;
    memset(v, 0, sizeof *v);
    if (!cuts)
        return;
    for (int i = 0; i < L->pieces; i++) {
        cuts[n++] = i * all;
        if (heads < all)
            cuts[n++] = i * all + heads;
    }
    cuts[n] = L->pieces * all;
    value_create_cuts(L, v, name, CLASS_WORK, row_bytes, cuts, n, RES_NONE);
    v->full = 1;
}

/* Creates a value with a tile of `rows` rows for each piece, together in one buffer. */
static void pieces_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_WORK, L->pieces * rows, row_bytes, rows, RES_NONE);
    v->full = 1;
}

/* Creates a value of one layer that the backward pass reads. */
static void kept_value(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t rows,
                       int64_t row_bytes, int64_t cut, enum residency without)
{
    char name[48];
    snprintf(name, sizeof name, "layer%d.%s", b->layer, what);
    value_create(L, v, name, CLASS_ACT, rows, row_bytes, cut,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, b->layer) : without);
}

/* Returns the heads that each member folds. */
static int64_t share_of(const struct lowering *L, const struct recurrent_block *r)
{
    return ceil_div(r->heads, L->ring * L->ulysses);
}

void recurrent_ranks_of_layer(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    const int64_t heads = share_of(L, r) * L->ring * L->ulysses, tail = tail_rows(r) * r->channels * dtype_size(L->s.key.dtype);
    kept_value(L, b, &v->state.before, "entering", L->pieces * heads, r->key_dim * r->value_dim * 4, heads, RES_DEVICE);
    kept_value(L, b, &v->tail.before, "entering_tail", L->pieces, tail, L->pieces, RES_DEVICE);
    kept_value(L, b, &v->moves, "moves", L->pieces * heads, r->key_dim * r->key_dim * 4, heads, RES_NONE);
    v->moves.full = 1;
    v->state.rows = r->heads;
    v->state.stride = heads;
    v->tail.rows = v->tail.stride = 1;
}

void recurrent_ranks_create(struct lowering *L, const struct recurrent_block *r)
{
    struct recurrent_ranks *R = recurrent_work(L)->ranks = memory_new(L, 1, sizeof *R);
    const enum dtype T = L->s.key.dtype;
    const int64_t state = r->key_dim * r->value_dim * 4, move = r->key_dim * r->key_dim * 4, tail = tail_rows(r) * r->channels;
    const enum residency passing = L->s.placement.passing;
    if (!R)
        return;
    R->members = L->ring * L->ulysses;
    R->share = share_of(L, r);
    R->heads = R->share * R->members;
    heads_value(L, &R->move, "piece.move", r->heads, move);
    heads_value(L, &R->own, "piece.own", r->heads, state);
    heads_value(L, &R->dafter, "piece.dafter", r->heads, state);
    pieces_value(L, &R->theirs, "piece.theirs", R->heads, state);
    pieces_value(L, &R->folded, "piece.folded", R->heads, state);
    pieces_value(L, &R->tails, "piece.tails", 1, tail * dtype_size(T));
    pieces_value(L, &R->dtails, "piece.dtails", 1, tail * 4);
    pieces_value(L, &R->dtails_after, "piece.dtails_after", 1, tail * 4);
    const int64_t all = (int64_t)R->members * L->pieces;
    value_create(L, &R->all_tails, "piece.all_tails", CLASS_WORK, all, tail * dtype_size(T), all, RES_NONE);
    value_create(L, &R->all_dtails, "piece.all_dtails", CLASS_WORK, all, tail * 4, all, RES_NONE);
    value_create(L, &R->first, "piece.first", CLASS_WORK, tail_rows(r), r->channels * dtype_size(T), tail_rows(r), RES_NONE);
    value_create(L, &R->rest, "piece.rest", CLASS_WORK, tail_rows(r), r->channels * dtype_size(T), tail_rows(r), RES_NONE);
    const struct activation between[] = {{&R->dqkv, "dqkv", r->channels, T, CHUNKS},
                                         {&R->dz, "dz", recurrent_values(r), T, CHUNKS},
                                         {&R->dab, "dab", recurrent_numbers(r), T, CHUNKS},
                                         {&R->dheads, "dheads", recurrent_values(r), T, CHUNKS}};
    for (size_t i = 0; L->st == OK && i < sizeof between / sizeof *between; i++)
        activation_of_work(L, passing, -1, &between[i]);
}
