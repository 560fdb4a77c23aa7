/* A model family: what tells it from the others. A file each describes one or several alike. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_H
#define LTRAIN_MODEL_FAMILY_H

#include "model/builder.h"

struct family {
    int learned_positions; /* else they are rotary */
    /* What its shapes must satisfy beyond what all families' must. */
    enum status (*check)(const struct model_config *c);
    /* Parameters, as Hugging Face names and shapes them, and what uses them: m->embed and m->pos_embed (-1 before), the blocks
     * of layer l, m->head and m->final_norm. */
    void (*embedding)(struct builder *b);
    void (*layer)(struct builder *b, int l);
    void (*head)(struct builder *b);
};

extern const struct family family_llama, family_gpt2;

const struct family *family_of(const struct model_config *c);

#endif
