/* The part of a row of blocks.h that only model reads. Private to model. */
#ifndef LTRAIN_MODEL_BLOCK_ROWS_H
#define LTRAIN_MODEL_BLOCK_ROWS_H

#include "model/model.h"

enum { BLOCK_SIGNATURE = 4 }; /* most numbers of a signature */
/* Writes the block's signature, -1 after its last number. */
void block_signature(const struct model_block *b, int64_t out[BLOCK_SIGNATURE]);
/* Returns the model FLOPs of `layers` such blocks, without those of matrices that multiply tokens. */
double block_flops(const struct model *m, const struct model_block *b, int layers, int64_t tokens,
                   const double pairs[MODEL_MASKS]);

#endif
