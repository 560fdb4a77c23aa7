/* Experts have no lowering yet: lower_check_blocks refuses models that have them. */
#include "plan/lower/blocks/block.h"

const struct block_lowering experts_lowering = {.produce = NULL};
