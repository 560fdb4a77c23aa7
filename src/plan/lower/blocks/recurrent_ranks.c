/* Recurrences of sequences that ranks share: states pass from piece to piece, wherever the pieces lie.
 *
 * Forward: the last rows before each piece's convolution come from all ranks; each rank summarises its pieces (SCAN_SUM); an all-to-all
 * brings the summaries of some heads of all pieces to each rank, which finds the states between the pieces in the order of the tokens
 * (SCAN_FOLD); an all-to-all returns these, and the chunks follow as on one rank. Backward: the gradients of states that come from a
 * piece's own outputs, the fold with the same moves, then the scan's gradients; last the convolution's, which need the rows after each
 * piece. */
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

/* Values that the layers share. A value of heads has `heads` rows for each of the rank's pieces, `share` heads of each member in turn;
 * rows beyond the model's heads are zero.
 *
 * move, own: summaries of the rank's pieces; theirs: `own` of all members' pieces, for the heads whose states this rank
 * computes; folded: the states before these pieces, or the gradients of the states after them; dafter: the gradients of the states after
 * the rank's own pieces. dqkv, dz, dab, dheads:
 * gradients between the passes, of the convolution's output, of z, of ab and of heads' outputs. */
struct recurrent_ranks {
    int members;
    int64_t share, heads;
    struct value move, own, theirs, folded, dafter;
    struct tails tails;
    struct value dqkv, dz, dab, dheads;
};

static struct recurrent_ranks *ranks_of(const struct lowering *L)
{
    return recurrent_work(L)->ranks;
}

/* Returns the first row of a piece in values of heads. */
static int64_t heads_row(const struct lowering *L, int piece)
{
    return piece * ranks_of(L)->heads;
}

/* --- Values --- */

/* Begins a value of heads in the rank's pieces, with zeros in the rows beyond the model's heads. */
static void new_heads(struct lowering *L, const struct block *b, struct value *v)
{
    const int64_t heads = recurrent_of(b)->heads;
    pieces_new(L, v);
    for (int i = 0; i < L->pieces && heads < ranks_of(L)->heads; i++)
        pieces_fill(L, v, heads_row(L, i) + heads, heads_row(L, i + 1));
}

/* --- Messages --- */

/* Exchanges rows by an all-to-all: each rank gives all heads of one of its pieces, and gets some heads of each member's piece. */
static void exchange(struct lowering *L, struct value *from, struct value *to, int piece)
{
    struct op_attrs *a = emit(L, OP_ALL_TO_ALL, pieces_lane(L));
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
    pieces_new(L, to);
    for (int i = 0; i < L->pieces; i++)
        exchange(L, from, to, i);
    value_close_full(L, from);
}

/* Computes, for this rank's share of the heads, the states before all pieces or (transposed) the gradients of the states after them. */
static void fold(struct lowering *L, const struct block *b, int transposed)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t pieces = (int64_t)R->members * L->pieces;
    pieces_new(L, &R->folded);
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

/* --- Forward --- */

/* Ends a visit of a chunk that is visited again in the forward pass. */
static void pause(struct lowering *L, const struct block *b, int c)
{
    recurrent_drop_values(L, b, c);
    value_pause(L, b->source, c);
}

/* Finds the rows before each of the rank's pieces. */
static void find_tails(struct lowering *L, const struct block *b)
{
    const struct convolution k = recurrent_convolution(recurrent_of(b));
    struct recurrent_layer *v = b->values;
    struct tails *t = &ranks_of(L)->tails;
    if (t->rows == 0)
        return;
    tails_begin(L, t);
    for (int c = 0; c < L->n_chunks; c++) {
        if (!passing_ends_piece(L, c))
            continue;
        value_get(L, &v->pre, c);
        tails_take(L, t, &k, &v->pre, c);
        value_drop(L, &v->pre, c);
        value_drop(L, b->normed, c);
        value_pause(L, b->source, c);
    }
    tails_exchange(L, t, &v->tail);
}

/* Adds chunk c to its piece's summary. */
static void sum_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    struct value *const to[] = {&W->ranks->move, &W->ranks->own};
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1, row0 = heads_row(L, passing_piece(L, c));
    struct op_attrs *a = recurrent_emit_scan(L, b, OP_SCAN_SUM, r1 - r0);
    a->scan.accumulate = !passing_begins_piece(L, c);
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
        recurrent_get_numbers(L, b, c);
        recurrent_convolve(L, b, c);
        sum_chunk(L, b, c);
        pause(L, b, c);
    }
}

void recurrent_ranks_forward(struct lowering *L, struct block *b)
{
    struct recurrent_layer *v = b->values;
    if (!passing_is_shared(L))
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

/* Adds chunk c, whose outputs have the gradient dout, to the gradient of the state before its piece. The piece's last chunk comes first. */
static void sum_gradient(struct lowering *L, const struct block *b, struct value *dout, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1, row0 = heads_row(L, passing_piece(L, c));
    const int64_t row1 = row0 + recurrent_of(b)->heads;
    if (passing_ends_piece(L, c))
        pieces_fill(L, &W->ranks->own, row0, row1);
    recurrent_emit_scan(L, b, OP_SCAN_GRAD_SUM, r1 - r0);
    arg_update(L, 0, &W->ranks->own, row0, row1, DEV);
    arg_read(L, 1, &W->qkv, r0, r1, DEV);
    arg_read(L, 2, &W->g, r0, r1, DEV);
    arg_read(L, 3, &W->beta, r0, r1, DEV);
    arg_read(L, 4, dout, r0, r1, DEV);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    emit_done(L, 0);
}

/* Computes dheads, the gradient of heads' outputs of chunk c, and the gradient of z. */
static void outputs_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    block_get_gradient(L, b, c);
    value_put(L, &L->dx, c);
    value_get(L, &v->pre, c);
    value_get(L, &v->z, c);
    recurrent_get_numbers(L, b, c);
    struct value *dout = recurrent_outputs_backward(L, b, c);
    value_drop(L, &L->dx, c);
    sum_gradient(L, b, dout, c);
    passing_keep_chunk(L, &R->dheads, dout, c);
    passing_keep_chunk(L, &R->dz, &v->z, c);
    value_drop(L, dout, c);
    recurrent_drop(L, b, c);
}

/* Computes the gradients of the states after the rank's pieces. */
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

/* Computes the gradients of the convolution's output and of ab for chunk c. */
static void scan_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = recurrent_convolution(recurrent_of(b));
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    const int64_t row0 = heads_row(L, passing_piece(L, c));
    value_get(L, &v->pre, c);
    recurrent_get_numbers(L, b, c);
    value_get(L, &R->dheads, c);
    recurrent_convolve(L, b, c);
    passing_get_before(L, &v->state, c);
    recurrent_scan_backward(L, b, &R->dheads, &R->dafter, row0, row0 + recurrent_of(b)->heads, c);
    recurrent_decay_backward(L, b, c);
    if (passing_begins_piece(L, c))
        tails_gradient(L, &R->tails, &k, &v->pre, &recurrent_work(L)->qkv, &v->tail, c);
    passing_keep_chunk(L, &R->dqkv, &recurrent_work(L)->qkv, c);
    if (recurrent_numbers(recurrent_of(b)) > 0)
        passing_keep_chunk(L, &R->dab, &v->ab, c);
    recurrent_drop(L, b, c);
}

static void inputs_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = recurrent_convolution(recurrent_of(b));
    struct recurrent_layer *v = b->values;
    struct recurrent_ranks *R = ranks_of(L);
    struct value *const kept[] = {&R->dqkv, &R->dz, &R->dab};
    const int n = recurrent_numbers(recurrent_of(b)) > 0 ? 3 : 2;
    value_get(L, &L->dx, c);
    value_get(L, b->source, c);
    value_get(L, &v->pre, c);
    passing_get_before(L, &v->tail, c);
    for (int i = 0; i < n; i++)
        value_get(L, kept[i], c);
    convolution_backward(L, &k, &v->pre, &R->dqkv, &R->tails.dtails_after, passing_piece(L, c), &v->tail, c);
    recurrent_inputs_backward(L, b, &(struct recurrent_gradients){&v->pre, &R->dz, &R->dab}, c);
    block_norm_backward(L, b, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    for (int i = 0; i < n; i++)
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
    tails_begin_backward(L, &R->tails);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        scan_chunk(L, b, c);
    value_close_full(L, &R->dafter);
    tails_exchange_backward(L, &R->tails);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        inputs_chunk(L, b, c);
    tails_end_backward(L, &R->tails);
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

/* Returns the number of heads whose states each member computes from all ranks' summaries (SCAN_FOLD). */
static int64_t share_of(const struct lowering *L, const struct recurrent_block *r)
{
    return ceil_div(r->heads, L->ring * L->ulysses);
}

void recurrent_ranks_of_layer(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    const int64_t heads = share_of(L, r) * L->ring * L->ulysses;
    const struct convolution k = recurrent_convolution(r);
    passing_kept(L, b, &v->state.before, "entering", L->pieces * heads, r->key_dim * r->value_dim * 4, heads, RES_DEVICE);
    tails_create_before(L, b, &v->tail, &k);
    passing_kept(L, b, &v->moves, "moves", L->pieces * heads, r->key_dim * r->key_dim * 4, heads, RES_NONE);
    v->moves.full = 1;
    v->state.rows = r->heads;
    v->state.stride = heads;
}

void recurrent_ranks_create(struct lowering *L, const struct recurrent_block *r)
{
    struct recurrent_ranks *R = recurrent_work(L)->ranks = memory_new(L, 1, sizeof *R);
    const enum dtype T = L->s.key.dtype;
    const int64_t state = r->key_dim * r->value_dim * 4, move = r->key_dim * r->key_dim * 4;
    const struct convolution k = recurrent_convolution(r);
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
    tails_create(L, &R->tails, &k);
    const struct activation between[] = {{&R->dqkv, "dqkv", r->channels, T, CHUNKS},
                                         {&R->dz, "dz", recurrent_values(r), T, CHUNKS},
                                         {&R->dab, "dab", recurrent_numbers(r), T, CHUNKS},
                                         {&R->dheads, "dheads", recurrent_values(r), T, CHUNKS}};
    for (size_t i = 0; L->st == OK && i < sizeof between / sizeof *between; i++)
        if (between[i].cols > 0)
            activation_of_work(L, passing, -1, &between[i]);
}
