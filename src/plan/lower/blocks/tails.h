/* Convolutions over the last tokens of a document, and the last rows before them that pass between ranks. Private to
 * src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_TAILS_H
#define LTRAIN_PLAN_LOWER_BLOCKS_TAILS_H

#include "plan/lower/blocks/passing.h"

/* A convolution: its columns, the tokens that it reads, whether SiLU follows, and its parameters; -1: no weights (of one token), no
 * bias. */
struct convolution {
    int64_t columns, width;
    int silu, weight, bias;
};

/* Begins an op of a convolution, whose arguments follow. */
struct op_attrs *convolution_emit(struct lowering *L, const struct convolution *k, enum op_kind op, int64_t rows);
/* Computes y for chunk c of x; the chunk's first visit also keeps the last rows of x, for the chunk after. */
void convolution_forward(struct lowering *L, const struct convolution *k, struct value *y, struct value *x, struct passing *tail,
                         int c);
/* Replaces x by its gradient, which follows from dy, the gradient of the convolution's output, and from row `row` of the tail's
 * gradient. */
void convolution_backward(struct lowering *L, const struct convolution *k, struct value *x, struct value *dy, struct value *dtail,
                          int64_t row, struct passing *tail, int c);
/* Returns the bytes of the rows before a convolution; 0 if it reads one token alone. */
int64_t convolution_tail(const struct convolution *k, enum dtype type);

/* Values between ranks. tails: the last rows of the rank's pieces, all_tails: those of all ranks; dtails: gradients of the rows before
 * the pieces, dtails_after: of each piece's last rows, from the piece after it. first, rest: rows of a convolution that nobody else
 * reads. rows: rows of a tail; 0: nothing passes, and the functions below do nothing. */
struct tails {
    int64_t rows;
    struct value tails, all_tails, dtails, all_dtails, dtails_after, first, rest;
};

void tails_create(struct lowering *L, struct tails *t, const struct convolution *k);
/* Creates the layer's value of the rows that precede the rank's pieces. */
void tails_create_before(struct lowering *L, const struct block *b, struct passing *tail, const struct convolution *k);
/* Begins a forward pass. */
void tails_begin(struct lowering *L, struct tails *t);
/* Takes the last rows of x, for a chunk that ends a piece. */
void tails_take(struct lowering *L, struct tails *t, const struct convolution *k, struct value *x, int c);
/* Finds the rows before each of the rank's pieces. */
void tails_exchange(struct lowering *L, struct tails *t, struct passing *tail);
/* Begins a backward pass. */
void tails_begin_backward(struct lowering *L, struct tails *t);
/* Computes the gradient of the rows before the piece that begins with chunk c, from the first rows of dy alone. */
void tails_gradient(struct lowering *L, struct tails *t, const struct convolution *k, struct value *x, struct value *dy,
                    struct passing *tail, int c);
/* Finds the gradients of the rows at the end of each piece. */
void tails_exchange_backward(struct lowering *L, struct tails *t);
/* Ends the visit of the gradients that tails_exchange_backward found. */
void tails_end_backward(struct lowering *L, struct tails *t);

/* Returns the comm lane whose groups are the ranks that share a sequence; mesh.c refuses meshes without such a lane. */
enum lane pieces_lane(const struct lowering *L);
/* Creates a value with a tile of `rows` rows for each piece; one buffer holds all tiles. */
void pieces_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes);
/* Makes room for all tiles of a value. */
void pieces_new(struct lowering *L, struct value *v);
/* Sets rows to zero. */
void pieces_fill(struct lowering *L, struct value *v, int64_t row0, int64_t row1);

#endif
