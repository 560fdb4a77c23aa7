/* GPT-2: layer norms, learned positions, biases everywhere, GELU; matrices stored [in, out], q, k and v as columns of one. */
#include "model/family.h"

#include <math.h>

static enum status check(const struct model_config *c)
{
    if (c->heads * c->head_dim != c->dim || c->kv_heads != c->heads)
        return status_fail(
            ERR_INVALID,
            "model: GPT-2 with hidden size %lld needs heads x head size of the same, not %lld x %lld (%lld key-value heads)",
            (long long)c->dim, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads);
    return OK;
}

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "transformer.");
    b->m->embed = build_embedding(b, "wte", c->vocab, c->dim, c->init_std);
    b->m->pos_embed = build_matrix(b, "wpe", c->max_positions, c->dim, c->init_std);
    build_use_rows(b, c->positions);
}

static void layer(struct builder *b, int l)
{
    enum { CONV1D = LINEAR_IN_OUT | LINEAR_BIAS };
    const struct model_config *c = &b->m->config;
    int64_t dim = c->dim;
    double std = c->init_std, residual_std = std / sqrt(2.0 * (double)c->layers); /* GPT-2's scaling of what adds to the stream */
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "transformer.h.%d.", l);
    attention->norm = build_norm(b, "ln_1", NORM_LAYER);
    struct model_linear qkv = build_linear(b, "attn.c_attn", dim, 3 * dim, CONV1D, std);
    attention->attention.q = build_slice(&qkv, 0, dim);
    attention->attention.k = build_slice(&qkv, dim, dim);
    attention->attention.v = build_slice(&qkv, 2 * dim, dim);
    attention->attention.o = build_linear(b, "attn.c_proj", dim, dim, CONV1D, residual_std);
    mlp->norm = build_norm(b, "ln_2", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.c_fc", dim, c->ffn, CONV1D, std);
    mlp->mlp.down = build_linear(b, "mlp.c_proj", c->ffn, dim, CONV1D, residual_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "transformer.ln_f", NORM_LAYER);
}

/* ---- config.json ---- */

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (c->dim % c->heads)
        return config_refuse(r, "n_head", "n_embd is not a multiple");
    c->head_dim = c->dim / c->heads;
    c->kv_heads = c->heads;
    if (!c->ffn)
        c->ffn = 4 * min_i64(c->dim, INT32_MAX);
    return OK;
}

static const struct config_word activations[] = {
    {"gelu_new", GELU_TANH}, {"gelu_pytorch_tanh", GELU_TANH}, {"gelu", GELU_ERF}, {NULL, 0}};

static const struct config_key keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"n_positions", KEY_FIELD, AT_max_positions, 1024},
    {"n_embd", KEY_REQUIRED, AT_dim},
    {"n_layer", KEY_REQUIRED, AT_layers},
    {"n_head", KEY_REQUIRED, AT_heads},
    {"n_inner", KEY_FIELD, AT_ffn},
    {"activation_function", KEY_WORD, AT_gelu, GELU_TANH, activations},
    {"layer_norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"scale_attn_weights", KEY_ONLY_TRUE},
    {"scale_attn_by_inverse_layer_idx", KEY_ONLY_FALSE},
    {"reorder_and_upcast_attn", KEY_ONLY_FALSE},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"attn_pdrop", KEY_DROPOUT},
    {"embd_pdrop", KEY_DROPOUT},
    {"resid_pdrop", KEY_DROPOUT},
    {NULL},
};

static const char *const buffers[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL}; /* causal masks */

const struct family family_gpt2 = {.name = "gpt2",
                                   .class = "GPT2LMHeadModel",
                                   .learned_positions = 1,
                                   .buffers = buffers,
                                   .keys = {keys},
                                   .derive = derive,
                                   .check = check,
                                   .embedding = embedding,
                                   .layer = layer,
                                   .head = head};
