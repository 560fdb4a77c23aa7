/* Programs that read the next tokens of a text and compute the logits after the last token. Private to src/plan/lower.
 *
 * Their rows are one row chunk: consecutive tokens in one block of the cache, then rows without a token (with empty masks and an
 * index outside the block). Keys and values of earlier tokens are cached (strategy.h). */
#ifndef LTRAIN_PLAN_LOWER_DECODE_H
#define LTRAIN_PLAN_LOWER_DECODE_H

#include "plan/lower/lowering.h"

/* Creates inputs, outputs and caches. A mask has L->mask_rows rows for the tail, then as many for each slot; its keys are counted
 * from the block's first one. */
void decode_create(struct lowering *L, struct io_buffers *io);
void decode_passes(struct lowering *L);

#endif
