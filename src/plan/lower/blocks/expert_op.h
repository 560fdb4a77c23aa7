/* Beginning instructions of experts' products. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_OP_H
#define LTRAIN_PLAN_LOWER_BLOCKS_EXPERT_OP_H

#include "plan/lower/blocks/block.h"

/* Begins OP_EXPERTS or OP_EXPERTS_GRAD of a stack w for the pairs of `rows` tokens; all types are the storage type. */
struct op_attrs *experts_emit(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                              int64_t rows);

#endif
