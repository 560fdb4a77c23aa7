/* The recurrence: models with it are read, counted and written; no program of it is made yet. */
#include "plan/lower/blocks/block.h"

static void refuse(struct lowering *L, struct block *b)
{
    (void)b;
    L->st = status_fail(ERR_INVALID, "model: its recurrent layers (linear attention) are read and counted, but not planned yet: "
                                     "give a model whose layers all have attention");
}

const struct block_lowering recurrent_lowering = {.layer_values = refuse, .cache_create = refuse};
