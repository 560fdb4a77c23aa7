/* Numbers that pass from row chunk to row chunk, from text to text and between ranks: states, and last rows before convolutions.
 * Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_PASSING_H
#define LTRAIN_PLAN_LOWER_BLOCKS_PASSING_H

#include "plan/lower/blocks/block.h"

/* Tile i of `after` follows chunk i; where a text is read on, its only tile has a home and follows the text so far, and `room` is
 * where what follows is written first. Between ranks, what enters the rank's pieces is in `before`: for piece i, `rows` rows from row
 * i * stride on. */
struct passing {
    struct value after, before, *room;
    int64_t rows, stride;
};

/* Tells whether the program reads a text on, in one chunk. */
static inline int passing_reads_on(const struct lowering *L)
{
    return L->s.cached_tokens > 0;
}

/* Tells whether ranks share a sequence, so that numbers pass between them. */
static inline int passing_is_shared(const struct lowering *L)
{
    return L->s.piece > 0;
}

/* Returns the piece of chunk c, and its first chunk; each piece has as many chunks. */
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

/* Creates `after`, a tile of that size behind each chunk but the last; nothing where a text is read on. */
void passing_create(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes);
/* Creates the home of what follows a text, and binds it at the start (end = 0) or the end of a program. */
void passing_create_home(struct lowering *L, const struct block *b, struct passing *p, const char *what, int64_t bytes);
void passing_bind(struct lowering *L, const struct block *b, struct passing *p, int end);
/* Creates a value of one layer that the backward pass reads; without: its residency in programs without one. */
void passing_kept(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency without);

/* Makes sure that the rows that enter chunk c are on the device; appends them as an argument; ends their visit. Nothing enters the
 * first chunk of a sequence. */
void passing_get_before(struct lowering *L, struct passing *p, int c);
void passing_arg_before(struct lowering *L, int arg, struct passing *p, int c);
void passing_drop_before(struct lowering *L, struct passing *p, int c);
/* Tells whether a visit of chunk c makes what follows the chunk, as the first visit does, and makes room for it. */
int passing_begin_after(struct lowering *L, struct passing *p, int c);
/* Appends what passing_begin_after made room for. */
void passing_arg_after(struct lowering *L, int arg, struct passing *p, int c);
/* Keeps what follows chunk c. After a text it takes the place of what preceded, which the op has read. */
void passing_end_after(struct lowering *L, struct passing *p, int c);

/* Copies chunk c of a value in storage type, to be read in another pass. */
void passing_keep_chunk(struct lowering *L, struct value *to, struct value *from, int c);

#endif
