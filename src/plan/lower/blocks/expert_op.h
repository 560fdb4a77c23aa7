/* Beginning instructions of experts' products. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_OP_H
#define LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_OP_H

#include "plan/lower/blocks/block.h"

/* Begins OP_EXPERTS or OP_EXPERTS_GRAD of a stack w for the pairs of `rows` tokens; all types are the storage type. */
struct op_attrs *experts_emit(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                              int64_t rows);

/* Returns the number of pairs that a rank's experts have room for, for each row of a chunk. */
int64_t experts_room(const struct lowering *L);
/* Returns that room in percent of the rows that equally busy experts would fill; 0: every row has a pair. */
int32_t experts_padding(const struct lowering *L);
/* Begins such an op for the pairs that reach this rank's experts from all ranks' chunks of `rows` tokens. */
struct op_attrs *experts_emit_here(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                                   int64_t rows);

#endif
