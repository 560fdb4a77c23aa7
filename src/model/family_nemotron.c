/* Nemotron and Minitron: layer norms with weights 1 + w, half of each head rotated, an MLP of two maps and a squared ReLU between. */
#include "model/family_common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned attention_form = c->attention_bias ? LINEAR_BIAS : 0, mlp_form = c->mlp_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_LAYER_ONE);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_LAYER_ONE);
    common_attention(b, &attention->attention, attention_form, attention_form);
    common_ungated_mlp(b, &mlp->mlp, mlp_form);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_LAYER_ONE);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        return config_missing(r, "num_key_value_heads");
    if (!c->max_positions)
        c->max_positions = 4096;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gelu, RELU_SQUARED, common_ungated},
    {"norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    SHARE_KEY,
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
