/* StableLM: Llama with layer norms, and a part of each head rotated. In some models attention and MLP read the same norm. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_LAYER);
    mlp->norm = c->parallel ? attention->norm : build_norm(b, "post_attention_layernorm", NORM_LAYER);
    mlp->parallel = c->parallel;
    common_attention(b, &attention->attention, c->attention_bias ? LINEAR_BIAS : 0, 0);
    common_mlp(b, &mlp->mlp, 0);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_LAYER);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        return config_missing(r, "num_key_value_heads");
    if (c->head_dim && c->head_dim * c->heads != c->dim)
        return config_refuse(r, "head_dim", "must be hidden_size / num_attention_heads");
    if (!c->max_positions)
        c->max_positions = 4096;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"layer_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"use_qkv_bias", KEY_FIELD, AT_attention_bias, 0},
    {"use_parallel_residual", KEY_FIELD, AT_parallel, 0},
    {"qk_layernorm", KEY_ONLY_FALSE}, /* norms of each head, stored as a tensor each */
    SHARE_KEY,
    {"hidden_dropout", KEY_DROPOUT},
    {NULL},
};

const struct family family_stablelm = {.name = "stablelm",
                                       .class = "StableLmForCausalLM",
                                       .theta = 10000,
                                       .partial = 1,
                                       .share = 0.25,
                                       .keys = {common_keys, keys},
                                       COMMON,
                                       .derive = derive,
                                       .layer = layer,
                                       .head = head};
