/* GPT-NeoX (Pythia): layer norms, biases, GELU, a part of each head rotated. Attention and MLP read the same input or follow one
 * another. q, k and v are one matrix, stored head by head. */
#include "model/family/common.h"

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "gpt_neox.");
    b->m->embed = build_embedding(b, "embed_in", c->vocab, c->dim, c->init_std);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const int64_t dim = c->dim, rows[] = {c->head_dim, c->head_dim, c->head_dim};
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "gpt_neox.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_LAYER);
    struct model_linear qkv = build_interleaved(b, "attention.query_key_value", dim, 3 * dim, 3, rows, form, c->init_std);
    attention->attention.q = build_slice(&qkv, 0, dim);
    attention->attention.k = build_slice(&qkv, dim, dim);
    attention->attention.v = build_slice(&qkv, 2 * dim, dim);
    attention->attention.o = build_linear(b, "attention.dense", dim, dim, form, c->init_std);
    mlp->parallel = c->parallel;
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.dense_h_to_4h", dim, c->ffn, LINEAR_BIAS, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.dense_4h_to_h", c->ffn, dim, LINEAR_BIAS, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "gpt_neox.final_layer_norm", NORM_LAYER);
}

/* ---- config.json ---- */

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (c->dim % c->heads)
        return config_refuse(r, "num_attention_heads", "hidden_size is not a multiple");
    return common_derive(r, c);
}

static const struct config_word activations[] = {
    {"gelu", GELU_ERF}, {"gelu_new", GELU_TANH}, {"gelu_fast", GELU_TANH}, {"gelu_pytorch_tanh", GELU_TANH}, {NULL, 0}};

static const struct config_key keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"intermediate_size", KEY_REQUIRED, AT_ffn},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions, 2048},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"hidden_act", KEY_WORD, AT_activation, GELU_ERF, activations},
    {"layer_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"use_parallel_residual", KEY_FIELD, AT_parallel, 1},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"rotary_emb_base", KEY_SPECIAL, .read = common_read_theta, .write = common_write_theta},
    {"rotary_pct", KEY_SPECIAL, .write = common_write_share},
    {"rope_scaling", KEY_SPECIAL, .read = config_read_rope, .write = config_write_rope},
    {"is_causal", KEY_ONLY_TRUE},
    {"attention_dropout", KEY_DROPOUT},
    {"hidden_dropout", KEY_DROPOUT},
    {"attention_probs_dropout_prob", KEY_SPECIAL}, /* older names of the dropouts, which transformers ignores */
    {"hidden_dropout_prob", KEY_SPECIAL},
    {NULL},
};

/* Globs of causal masks and tables of sines. */
static const char *const buffers[] = {"*attention.bias", "*attention.masked_bias", "*rotary_emb.inv_freq", NULL};

const struct family family_gpt_neox = {.name = "gpt_neox",
                                       .class = "GPTNeoXForCausalLM",
                                       .head_name = "embed_out",
                                       .theta = 10000,
                                       .base_key = "rotary_emb_base",
                                       .share_key = "rotary_pct",
                                       .partial = 1,
                                       .share = 0.25,
                                       .buffers = buffers,
                                       .keys = {keys},
                                       .derive = derive,
                                       .check = common_check,
                                       .embedding = embedding,
                                       .layer = layer,
                                       .head = head};
