/* Token and learned position embeddings. An index outside its table gives a row of NaN (forward) or adds nothing (backward).
 *
 * Corpora are checked where they are read; should a bad index slip through, the user sees NaN. */
#ifndef LTRAIN_OPS_EMBED_H
#define LTRAIN_OPS_EMBED_H

#include "program/op.h"

struct embed_shape {
    int64_t rows, dim, vocab, max_pos;
    int32_t dtype;
    int32_t accumulate; /* backward; 1: add to dtable, 0: overwrite it */
    int32_t by_columns; /* 1: the table is stored [dim,vocab]; then there is no pos_table, and ops_scatter does not apply */
    int32_t over;       /* ops_embed; 1: rows of x whose token is negative stay as they are */
    float scale;        /* factor of rows of `table`, if there are no positions */
};

/* Computes x = scale table[tokens], or table[tokens] + pos_table[positions], rounded once. */
void ops_embed(const struct embed_shape *s, void *x /* T[rows,dim] */, const void *table /* T[vocab,dim] */,
               const int32_t *tokens /* [rows] */, const void *pos_table /* T[max_pos,dim] or NULL */,
               const int32_t *positions /* [rows] or NULL */);

/* Adds dtable[index[i]] += scale dx[i], for i in order (each task owns columns). */
void ops_embed_grad(const struct embed_shape *s, float *dtable /* [vocab,dim] */, const void *dx /* T[rows,dim] */,
                    const int32_t *index /* [rows] */);

/* Writes table[index[i]] = x[i]. Indices are distinct; one outside the table is skipped. */
void ops_scatter(const struct embed_shape *s, void *table /* T[vocab,dim] */, const void *x /* T[rows,dim] */,
                 const int32_t *index /* [rows] */);

#endif
