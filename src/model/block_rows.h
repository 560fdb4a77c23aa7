/* The members of a row of blocks.h that only src/model reads. Private to model. */
#ifndef LTRAIN_MODEL_BLOCK_ROWS_H
#define LTRAIN_MODEL_BLOCK_ROWS_H

#include "model/model.h"

enum { BLOCK_SIGNATURE = 6 }; /* most numbers of a signature */
/* Writes the block's signature, -1 after its last number. */
void block_signature(const struct model_block *b, int64_t out[BLOCK_SIGNATURE]);
/* Returns the model FLOPs of `layers` such blocks, without those of matrices that multiply tokens. */
double block_flops(const struct model *m, const struct model_block *b, int layers, int64_t tokens,
                   const double pairs[MODEL_MASKS]);

enum { MOST_MAPS = 5, MOST_NORMS = 3 };

/* Fields of a block that slices cut: maps into and out of heads or columns, norms over heads, and the vector with a number for
 * each head. NULL: none. */
struct fields {
    struct model_linear *into[MOST_MAPS], *out_of;
    struct model_norm *norm[MOST_NORMS];
    int *by_head;
};

/* Returns the number that slices must divide, and its name (*what); 0 for blocks that are not cut. */
int64_t block_cut_count(const struct model *m, const struct model_block *b, const char **what);
/* Lists the block's fields; none for blocks that are not cut. */
void block_fields(struct model_block *b, struct fields *f);

#endif
