/* Programs that read the next tokens of a text and give the logits after the last one. Private to src/plan/lower.
 *
 * Their rows are one row chunk: tokens that follow one another, in one block of the cache, beside rows that are none (their masks
 * are empty, their index is outside). Keys and values of earlier tokens are cached (cached.h). */
#ifndef LTRAIN_PLAN_LOWER_DECODE_H
#define LTRAIN_PLAN_LOWER_DECODE_H

#include "plan/lower/lowering.h"

/* Inputs, outputs and the caches. Masks have L->mask_rows rows for the tail, then for each slot, of keys counted from the block's
 * first one. */
void decode_create(struct lowering *L, struct io_buffers *io);
void decode_passes(struct lowering *L);

#endif
