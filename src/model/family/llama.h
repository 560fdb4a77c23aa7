/* Layers, keys and values that Llama shares with its nearest relatives: RMS norms, rotary positions, grouped heads, SwiGLU. Private to
 * model. */
#ifndef LTRAIN_MODEL_FAMILY_LLAMA_H
#define LTRAIN_MODEL_FAMILY_LLAMA_H

#include "model/family/common.h"

/* Differences between the layers of a relative and those of Llama. */
struct llama_layer {
    unsigned qkv, o, mlp;        /* LINEAR_BIAS or 0: forms of the maps */
    int ungated;                 /* 1: the MLP has two maps, with config's activation between */
    const char *q_norm, *k_norm; /* names of the norms of each head of q and k; NULL: there are none */
    int norm_last;               /* 1: these come after the rotation */
};
void llama_build(struct builder *b, int l, const struct llama_layer *as);
/* Declares only the attention of such a layer, and its norm. */
struct attention_block *llama_attention(struct builder *b, int l, const struct llama_layer *as);
/* Declares Llama's own layer, whose biases config.json gives. */
void llama_layer(struct builder *b, int l);
/* Derives what config.json leaves out from the family's positions, head_dim and all_heads (family.h). */
enum status llama_derive(struct config_reader *r, struct model_config *c);

#define LLAMA_KEYS(tied) LLAMA_KEYS_BUT(tied, 1e-6)
#define LLAMA_KEYS_BUT(tied, eps)                                                                             \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, eps}, \
    {                                                                                                         \
        "tie_word_embeddings", KEY_FIELD, AT_tied, tied                                                       \
    }
#define LLAMA_BIASES                                     \
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0}, \
    {                                                    \
        "mlp_bias", KEY_FIELD, AT_mlp_bias, 0            \
    }
/* A family like Llama: rotary base and positions without a key, functions of layers and of absent keys, further members. */
#define LLAMA_FAMILY(variable, model_type, architecture, base, length, build, fill, ...) \
    const struct family family_##variable = {.name = model_type,                         \
                                             .class = architecture,                      \
                                             .keys = {common_keys, variable##_keys},     \
                                             COMMON,                                     \
                                             .derive = fill,                             \
                                             .layer = build,                             \
                                             .head = common_head,                        \
                                             .theta = base,                              \
                                             .positions = length,                        \
                                             __VA_ARGS__}

#endif
