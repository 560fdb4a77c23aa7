/* Values of recurrences, and what stands between heads' outputs and the map back. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H
#define LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H

#include "plan/lower/blocks/block.h"
#include "plan/lower/pieces.h"

/* Numbers that pass from chunk to chunk: tile i of `after` follows chunk i; where a text is read on, its only tile has a home and
 * follows the text so far. Between ranks, what enters the rank's pieces is in `before`: for piece i, `rows` rows from row i * stride
 * on. */
struct passing {
    struct value after, before;
    int64_t rows, stride;
};

/* Values of one layer. ab: the maps to decays and to strengths side by side. moves: between ranks, of the heads that this rank folds,
 * `move` of the summaries of all pieces. */
struct recurrent_layer {
    struct value pre, z, ab, moves;
    struct passing state, tail;
};

/* Values that the layers share. half: one of the maps in ab; qkv: the convolution's output; o: heads' outputs; n: outputs of norms; y:
 * of gates; dn, dout: gradients of n in fp32, and of o; dstate, dtail: gradients of what follows a chunk, or room for what follows a text
 * that is read on. */
struct recurrent_work {
    struct value half, qkv, g, beta, o, n, y, dn, dout, dstate, dtail;
    struct recurrent_ranks *ranks; /* values of sequences that ranks share (recurrent_ranks.c); NULL: they share none */
};

/* Gradients of pre, z and ab. */
struct recurrent_gradients {
    struct value *pre, *z, *ab;
};

static inline struct recurrent_work *recurrent_work(const struct lowering *L)
{
    return L->shared[BLOCK_RECURRENT];
}

static inline const struct recurrent_block *recurrent_of(const struct block *b)
{
    return &b->weights->recurrent;
}

/* Returns the columns of all heads' outputs. */
static inline int64_t recurrent_values(const struct recurrent_block *r)
{
    return r->heads * r->value_dim;
}

/* Tells whether the program reads a text on, in one chunk. */
static inline int recurrent_reads_on(const struct lowering *L)
{
    return L->s.cached_tokens > 0;
}

/* Tells whether states pass between ranks. */
static inline int recurrent_is_shared(const struct lowering *L)
{
    return L->s.piece > 0;
}

/* Returns the piece of chunk c, and its first chunk; each piece has as many chunks. */
static inline int recurrent_piece(const struct lowering *L, int c)
{
    return recurrent_is_shared(L) ? (int)(c * L->s.key.row_chunk / L->s.piece) : 0;
}

static inline int recurrent_begins_piece(const struct lowering *L, int c)
{
    return c == 0 || recurrent_piece(L, c) != recurrent_piece(L, c - 1);
}

static inline int recurrent_ends_piece(const struct lowering *L, int c)
{
    return c == L->n_chunks - 1 || recurrent_piece(L, c) != recurrent_piece(L, c + 1);
}

/* Begins an op of a block, whose arguments follow. */
struct op_attrs *recurrent_emit_conv(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows);
struct op_attrs *recurrent_emit_scan(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows);
/* Appends the rows that enter chunk c, which are on the device; nothing enters the first chunk of a sequence. */
void recurrent_arg_before(struct lowering *L, int arg, struct passing *p, int c);
/* Computes the convolution of chunk c, and decays and strengths, from values that are on the device. */
void recurrent_convolve(struct lowering *L, const struct block *b, int c);
/* Computes heads' outputs of chunk c, and their norms. */
void recurrent_scan(struct lowering *L, const struct block *b, int c);
/* Turns qkv, g and beta into their gradients, from that of heads' outputs and the rows [row0, row1) of the gradient of the state. */
void recurrent_scan_backward(struct lowering *L, const struct block *b, struct value *dout, struct value *dstate, int64_t row0,
                             int64_t row1, int c);
/* Turns ab into its gradient, from those of g and beta. */
void recurrent_decay_backward(struct lowering *L, const struct block *b, int c);
/* Turns pre into its gradient, from dy, that of the convolution, and row `row` of the gradient of the tail. */
void recurrent_conv_backward(struct lowering *L, const struct block *b, struct value *dy, struct value *dtail, int64_t row,
                             int c);
/* Adds what the first maps give to the gradient of the stream, and makes the maps' own gradients. */
void recurrent_inputs_backward(struct lowering *L, const struct block *b, const struct recurrent_gradients *d, int c);
/* Makes sure that the rows that enter chunk c are on the device. */
void recurrent_get_before(struct lowering *L, struct passing *p, int c);
/* Ends a visit of chunk c: of the block's own values, and of the stream, too. */
void recurrent_drop_values(struct lowering *L, const struct block *b, int c);
void recurrent_drop(struct lowering *L, const struct block *b, int c);
/* Returns the columns of one of the maps in ab, from row `row` on. */
struct columns recurrent_half(const struct lowering *L, const struct block *b, struct value *ab, int which, int64_t row);
/* Returns the numbers a token that make decays and, beside a map to strengths, these. */
int64_t recurrent_numbers(const struct recurrent_block *r);

/* Computes what enters the rank's pieces, before the chunks of `out` are. */
void recurrent_ranks_forward(struct lowering *L, struct block *b);
void recurrent_ranks_backward(struct lowering *L, struct block *b);
void recurrent_ranks_of_layer(struct lowering *L, struct block *b);
void recurrent_ranks_create(struct lowering *L, const struct recurrent_block *r);

/* Computes the norms of heads' outputs of chunk c, where norms come before gates. */
void recurrent_norm(struct lowering *L, const struct block *b, int c);
/* Computes the branch of chunk c from gates, heads' outputs and, where they come first, norms that are on the device. */
void recurrent_branch(struct lowering *L, const struct block *b, int c);
/* Makes the gradient of heads' outputs from that of the branch, df, and returns it; z becomes its own gradient. */
struct value *recurrent_gates_backward(struct lowering *L, const struct block *b, struct value *df, int c);

#endif
