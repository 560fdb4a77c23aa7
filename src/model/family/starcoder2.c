/* StarCoder2: layer norms, biases everywhere, an MLP of two maps with GELU, rotary positions, a sliding window. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_LAYER);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_LAYER);
    common_attention(b, &attention->attention, form, form);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.c_fc", c->dim, c->ffn, form, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.c_proj", c->ffn, c->dim, form, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_LAYER);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 2;
    if (!c->max_positions)
        c->max_positions = 4096;
    return common_derive(r, c);
}

static const struct config_word activations[] = {
    {"gelu_pytorch_tanh", GELU_TANH}, {"gelu_new", GELU_TANH}, {"gelu", GELU_ERF}, {NULL, 0}};
static const struct config_word mlps[] = {{"default", 0}, {NULL, 0}}, norms[] = {{"layer_norm", 0}, {NULL, 0}};

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, GELU_TANH, activations},
    {"norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"use_bias", KEY_FIELD, AT_attention_bias, 1},
    WINDOW_KEY(common_read_window),
    {"mlp_type", KEY_WORD, NO_FIELD, .words = mlps},
    {"norm_type", KEY_WORD, NO_FIELD, .words = norms},
    {"activation_function", KEY_SPECIAL}, /* three keys of the model from which this one was converted */
    {"layer_norm_epsilon", KEY_SPECIAL},
    {"scale_attn_weights", KEY_SPECIAL},
    {"residual_dropout", KEY_DROPOUT},
    {"embedding_dropout", KEY_DROPOUT},
    {NULL},
};

const struct family family_starcoder2 = {.name = "starcoder2",
                                         .class = "Starcoder2ForCausalLM",
                                         .keys = {common_keys, keys},
                                         COMMON,
                                         .derive = derive,
                                         .layer = layer,
                                         .head = head};
