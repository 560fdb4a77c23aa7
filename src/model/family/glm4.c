/* GLM-4: half of each head is rotated in pairs of neighbours; gate and up are one matrix. Norms stand before each block, in glm4
 * (April 2025) after it, too. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    if (c->family == FAMILY_GLM4) {
        attention->after = build_norm(b, "post_self_attn_layernorm", NORM_RMS);
        mlp->after = build_norm(b, "post_mlp_layernorm", NORM_RMS);
    }
    common_attention(b, &attention->attention, c->attention_bias ? LINEAR_BIAS : 0, 0);
    common_fused_mlp(b, &mlp->mlp);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->head_dim)
        c->head_dim = 128;
    if (!c->max_positions)
        c->max_positions = 131072;
    c->rope_interleaved = 1;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1.5625e-07},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    SHARE_KEY,
    {NULL},
};

#define FAMILY \
    .keys = {common_keys, keys}, .partial = 1, .share = 0.5, COMMON, .derive = derive, .layer = layer, .head = common_head
const struct family family_glm = {.name = "glm", .class = "GlmForCausalLM", FAMILY};
const struct family family_glm4 = {.name = "glm4", .class = "Glm4ForCausalLM", FAMILY};
