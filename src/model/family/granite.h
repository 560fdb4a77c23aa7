/* Keys and experts of Granite's families. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_GRANITE_H
#define LTRAIN_MODEL_FAMILY_GRANITE_H

#include "model/family/experts.h"

/* Experts beside a shared MLP, as all of Granite's families have them. */
extern const struct experts_form granite_experts;

/* Reads the four factors; embedding_multiplier's reader reads all. */
enum status granite_read_factors(struct config_reader *r, struct model_config *c);
json_t *granite_write_embedding(const struct model_config *c);
json_t *granite_write_residual(const struct model_config *c);
json_t *granite_write_attention(const struct model_config *c);
json_t *granite_write_logits(const struct model_config *c);
/* Reads the width of the shared MLP. */
enum status granite_read_shared(struct config_reader *r, struct model_config *c);
enum status granite_derive(struct config_reader *r, struct model_config *c);

#define GRANITE_KEYS(tied, eps)                                                                                 \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, eps},   \
        {"tie_word_embeddings", KEY_FIELD, AT_tied, tied}, {"attention_bias", KEY_FIELD, AT_attention_bias, 0}, \
        {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},                                                                \
        {"embedding_multiplier", KEY_SPECIAL, .read = granite_read_factors, .write = granite_write_embedding},  \
        {"residual_multiplier", KEY_SPECIAL, .write = granite_write_residual},                                  \
        {"attention_multiplier", KEY_SPECIAL, .write = granite_write_attention},                                \
    {                                                                                                           \
        "logits_scaling", KEY_SPECIAL, .write = granite_write_logits                                            \
    }

#endif
