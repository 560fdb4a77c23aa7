/* Nemotron and Minitron: layer norms with weights 1 + w, half of each head rotated, an MLP of two maps with a squared ReLU
 * between. Jais 2: layer norms with biases, and the same MLP. */
#include "model/family/common.h"

static enum norm_kind norm_of(const struct builder *b)
{
    return b->m->config.family == FAMILY_JAIS2 ? NORM_LAYER : NORM_LAYER_ONE;
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned attention_form = c->attention_bias ? LINEAR_BIAS : 0, mlp_form = c->mlp_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", norm_of(b));
    mlp->norm = build_norm(b, "post_attention_layernorm", norm_of(b));
    common_attention(b, &attention->attention, attention_form, attention_form);
    common_ungated_mlp(b, &mlp->mlp, mlp_form);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", norm_of(b));
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads && c->family == FAMILY_NEMOTRON)
        return config_missing(r, "num_key_value_heads");
    if (!c->max_positions)
        c->max_positions = c->family == FAMILY_JAIS2 ? 8192 : 4096;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, RELU_SQUARED, common_ungated},
    {"norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    SHARE_KEY,
    {NULL},
};

static const struct config_key jais2_keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, RELU_SQUARED, common_ungated},
    {"layer_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 1},
    {NULL},
};

const struct family family_nemotron = {.name = "nemotron",
                                       .class = "NemotronForCausalLM",
                                       .theta = 10000,
                                       .partial = 1,
                                       .share = 0.5,
                                       .keys = {common_keys, keys},
                                       COMMON,
                                       .derive = derive,
                                       .layer = layer,
                                       .head = head};
const struct family family_jais2 = {.name = "jais2",
                                    .class = "Jais2ForCausalLM",
                                    .theta = 10000,
                                    .keys = {common_keys, jais2_keys},
                                    COMMON,
                                    .derive = derive,
                                    .layer = layer,
                                    .head = head};
