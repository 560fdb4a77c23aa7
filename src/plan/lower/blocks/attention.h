/* Attention as a block. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_ATTENTION_H
#define LTRAIN_PLAN_LOWER_BLOCKS_ATTENTION_H

#include "plan/lower/blocks/block.h"

extern const struct block_lowering attention_lowering;

#endif
