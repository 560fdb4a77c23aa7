/* Latent attention as DeepSeek's models have it: names, keys of config.json and layers. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_LATENT_H
#define LTRAIN_MODEL_FAMILY_LATENT_H

#include "model/family/experts.h"

/* Begins layer l with its attention and the norm before it. */
void latent_attention(struct builder *b, int l);
/* Declares a whole layer with an MLP. */
void latent_layer(struct builder *b, int l);

/* Keys from vocab_size to attention_dropout, in place of common_keys. */
extern const struct config_key latent_keys[];

/* Defines a family with the keys latent_keys; all else is as in LLAMA_FAMILY. */
#define LATENT_FAMILY(variable, model_type, architecture, length, build, fill, ...)  \
    const struct family family_##variable = {.name = model_type,                     \
                                             .class = architecture,                  \
                                             .keys = {latent_keys, variable##_keys}, \
                                             COMMON,                                 \
                                             .derive = fill,                         \
                                             .layer = build,                         \
                                             .head = common_head,                    \
                                             .theta = 10000,                         \
                                             .positions = length,                    \
                                             .all_heads = 1,                         \
                                             __VA_ARGS__}

#endif
