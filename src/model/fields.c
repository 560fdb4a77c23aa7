#include "model/fields.h"

int part_fields(struct model_block *b, struct fields *f)
{
    struct attention_block *a = &b->attention;
    *f = (struct fields){.out_of = NULL};
    switch ((int)b->kind) {
    case BLOCK_ATTENTION:
        *f = (struct fields){.into = {&a->q, &a->k, &a->v, &a->gate},
                             .out_of = &a->o,
                             .norm = {&a->q_norm, &a->k_norm, &a->v_norm},
                             .by_head = &a->sinks};
        return 1;
    case BLOCK_MLP:
        *f = (struct fields){.into = {&b->mlp.gate, &b->mlp.up}, .out_of = &b->mlp.down};
        return 1;
    default:
        return 0;
    }
}
