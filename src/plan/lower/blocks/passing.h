/* Values that pass from row chunk to row chunk, from call to call of sampling, between ranks, and from slice to slice of a sequence:
 * states of recurrences, and the last inputs of convolutions. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_PASSING_H
#define LTRAIN_PLAN_LOWER_BLOCKS_PASSING_H

#include "plan/lower/blocks/block.h"

/* One such value of a layer. after: tile i is the state behind chunk i; when sampling reads a text on, the only tile is the state behind
 * the text so far, and `room` receives the new state first. before: between ranks, the states that enter the rank's pieces, for piece i
 * `rows` rows from row i * stride on; between slices, the state that enters the slice. carry, dcarry: the state behind the slices so far,
 * and its gradient, which slices hand on. absent: 1: nothing passes, and the functions below do nothing. */
struct passing {
    struct value after, before, carry, dcarry, *room;
    int64_t rows, stride;
    int absent;
};

/* Tells whether the program continues a text whose state is cached (sampling), in one chunk. */
static inline int passing_reads_on(const struct lowering *L)
{
    return L->s.cached_tokens > 0;
}

/* Tells whether ranks share a sequence, so that states pass between ranks. */
static inline int passing_is_shared(const struct lowering *L)
{
    return L->s.piece > 0;
}

/* Tells whether stages take a sequence in slices, so that states pass from slice to slice. */
static inline int passing_is_sliced(const struct lowering *L)
{
    return strategy_slices(&L->s) > 1 && !passing_reads_on(L);
}

/* Returns the index of the piece that has chunk c; all pieces have equally many chunks. */
static inline int passing_piece(const struct lowering *L, int c)
{
    return passing_is_shared(L) ? (int)(c * L->s.key.row_chunk / L->s.piece) : 0;
}

static inline int passing_begins_piece(const struct lowering *L, int c)
{
    return c == 0 || passing_piece(L, c) != passing_piece(L, c - 1);
}

static inline int passing_ends_piece(const struct lowering *L, int c)
{
    return c == L->n_chunks - 1 || passing_piece(L, c) != passing_piece(L, c + 1);
}

/* Creates `after`, a tile of `bytes` bytes behind each chunk but the last, and between slices `before`; does nothing if
 * passing_reads_on. Of 0 bytes, nothing passes. */
void passing_create(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes);
/* Creates the home of the state behind a text; passing_bind binds it at the start (end = 0) or the end (1) of a program. */
void passing_create_home(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes);
void passing_bind(struct lowering *L, const struct block *b, struct passing *p, int end);
/* Creates `carry` or (gradients = 1) `dcarry`, of `bytes` bytes; passing_bind_carry binds both, as passing_bind. */
void passing_create_carry(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes,
                          int gradients);
void passing_bind_carry(struct lowering *L, struct passing *p, int end);
/* Takes the state that enters the slice, before its first chunk's forward pass. Does nothing without slices. */
void passing_enter(struct lowering *L, struct passing *p);
/* Makes `gradient` that of the state behind the last chunk: zero, or what the next slice has left; passing_leave_gradient: leaves it for
 * the slice before, and ends its visit. */
void passing_enter_gradient(struct lowering *L, struct passing *p, struct value *gradient);
void passing_leave_gradient(struct lowering *L, struct passing *p, struct value *gradient);
/* Creates a value of one layer that the backward pass reads. without: the value's residency in programs without a backward pass. */
void passing_kept(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency without);

/* Brings the rows that enter chunk c to the device (get), appends them as an argument (arg), and ends their visit (drop). No rows enter
 * the first chunk of a sequence, but those of slices. */
void passing_get_before(struct lowering *L, struct passing *p, int c);
void passing_arg_before(struct lowering *L, int arg, struct passing *p, int c);
void passing_drop_before(struct lowering *L, struct passing *p, int c);
/* Makes room for the state behind chunk c, and returns 1, if this visit of the chunk has to compute that state; else returns 0. */
int passing_begin_after(struct lowering *L, struct passing *p, int c);
/* Appends the state for which passing_begin_after made room as an argument. */
void passing_arg_after(struct lowering *L, int arg, struct passing *p, int c);
/* Keeps the state behind chunk c. Behind a text, the new state replaces the former one, which the op has read. */
void passing_end_after(struct lowering *L, struct passing *p, int c);

/* Copies chunk c of a value in the storage type, so that another pass can read the copy. */
void passing_keep_chunk(struct lowering *L, struct value *to, struct value *from, int c);

#endif
