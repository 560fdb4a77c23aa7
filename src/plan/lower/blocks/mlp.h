/* The dense MLP as a block. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_MLP_H
#define LTRAIN_PLAN_LOWER_BLOCKS_MLP_H

#include "plan/lower/blocks/block.h"

extern const struct block_lowering mlp_lowering;

#endif
