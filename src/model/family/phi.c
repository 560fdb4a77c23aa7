/* Phi 1 to 2, GPT-J and CodeGen: attention and MLP read the same layer norm; a part of each head is rotated; the MLP has two maps
 * and GELU; the head has a bias.
 *
 * Phi has biases everywhere; GPT-J and CodeGen only in the MLP, and they rotate neighbouring pairs. CodeGen has queries, values
 * and keys in one matrix, stored in four parts. */
#include "model/family/common.h"

#include <math.h>

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    const struct attention_shape *s = build_shape(b, a);
    const int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = mlp->norm = build_norm(b, "input_layernorm", NORM_LAYER);
    mlp->parallel = 1;
    a->q = build_linear(b, "self_attn.q_proj", c->dim, q, LINEAR_BIAS, c->init_std);
    a->k = build_linear(b, "self_attn.k_proj", c->dim, kv, LINEAR_BIAS, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", c->dim, kv, LINEAR_BIAS, c->init_std);
    a->o = build_linear(b, "self_attn.dense", q, c->dim, LINEAR_BIAS, c->init_std);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.fc1", c->dim, c->ffn, LINEAR_BIAS, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.fc2", c->ffn, c->dim, LINEAR_BIAS, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.final_layernorm", NORM_LAYER);
}

/* ---- GPT-J, CodeGen ---- */

enum { CODEGEN_PARTS = 4, USUAL_ROTARY_DIM = 64 };

static void embedding_j(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "transformer.");
    b->m->embed = build_embedding(b, "wte", c->vocab, c->dim, c->init_std);
}

static void build_heads(struct builder *b, struct attention_block *a)
{
    const struct model_config *c = &b->m->config;
    const int64_t dim = c->dim, part = dim / CODEGEN_PARTS, rows[] = {part, part, part};
    if (c->family == FAMILY_CODEGEN) {
        struct model_linear fused = build_interleaved(b, "attn.qkv_proj", dim, 3 * dim, 3, rows, 0, c->init_std);
        a->q = build_slice(&fused, 0, dim);
        a->v = build_slice(&fused, dim, dim);
        a->k = build_slice(&fused, 2 * dim, dim);
    } else {
        a->q = build_linear(b, "attn.q_proj", dim, dim, 0, c->init_std);
        a->k = build_linear(b, "attn.k_proj", dim, dim, 0, c->init_std);
        a->v = build_linear(b, "attn.v_proj", dim, dim, 0, c->init_std);
    }
    a->o = build_linear(b, "attn.out_proj", dim, dim, 0, c->init_std);
}

static void layer_j(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "transformer.h.", l);
    attention->norm = mlp->norm = build_norm(b, "ln_1", NORM_LAYER);
    mlp->parallel = 1;
    build_heads(b, &attention->attention);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.fc_in", c->dim, c->ffn, LINEAR_BIAS, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.fc_out", c->ffn, c->dim, LINEAR_BIAS, c->init_std);
}

static void head_j(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "transformer.ln_f", NORM_LAYER);
}

/* ---- config.json ---- */

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->max_positions)
        c->max_positions = 2048;
    return common_derive(r, c);
}

/* Reads rotary_dim as a share of the head, chosen so that rounding gives back the same number of elements. */
static enum status read_rotary_dim(struct config_reader *r, struct model_config *c)
{
    int64_t n = USUAL_ROTARY_DIM;
    c->rope_theta = 10000.0;
    c->rope_interleaved = 1;
    TRY(config_read_count(r, "rotary_dim", OPTIONAL, 2, &n));
    if (json_is_null(json_object_get(r->object, "rotary_dim")))
        return config_refuse(r, "rotary_dim", "must be a number");
    if (c->dim % c->heads)
        return config_refuse(r, "n_head", "n_embd is not a multiple");
    c->head_dim = c->dim / c->heads;
    if (n > c->head_dim)
        return config_refuse(r, "rotary_dim", "is more than a head has");
    c->rope_share = n < c->head_dim ? (double)n / (double)c->head_dim : 0.0;
    if (model_rotated(c, c->head_dim) < n)
        c->rope_share = nextafter(c->rope_share, 1.0);
    return OK;
}

static json_t *write_rotary_dim(const struct model_config *c)
{
    return json_integer((json_int_t)model_rotated(c, c->head_dim));
}

static enum status derive_j(struct config_reader *r, struct model_config *c)
{
    if (c->family == FAMILY_CODEGEN && c->dim % CODEGEN_PARTS)
        return config_refuse(r, "n_embd", "must be a multiple of 4");
    c->kv_heads = c->heads;
    if (!c->ffn)
        c->ffn = 4 * min_i64(c->dim, INT32_MAX);
    return OK;
}

static const struct config_word activations[] = {
    {"gelu_new", GELU_TANH}, {"gelu_pytorch_tanh", GELU_TANH}, {"gelu_fast", GELU_TANH}, {"gelu", GELU_ERF}, {NULL, 0}};

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, GELU_TANH, activations},
    {"layer_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"qk_layernorm", KEY_ONLY_FALSE},
    SHARE_KEY,
    {"resid_pdrop", KEY_DROPOUT},
    {"embd_pdrop", KEY_DROPOUT},
    {NULL},
};

static const struct config_key keys_j[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"n_positions", KEY_FIELD, AT_max_positions, 2048},
    {"n_embd", KEY_REQUIRED, AT_dim},
    {"n_layer", KEY_REQUIRED, AT_layers},
    {"n_head", KEY_REQUIRED, AT_heads},
    {"n_inner", KEY_FIELD, AT_ffn},
    {"rotary_dim", KEY_SPECIAL, .read = read_rotary_dim, .write = write_rotary_dim},
    {"rotary", KEY_ONLY_TRUE},
    {"activation_function", KEY_WORD, AT_activation, GELU_TANH, activations},
    {"layer_norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"scale_attn_weights", KEY_ONLY_TRUE},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"attn_pdrop", KEY_DROPOUT},
    {"embd_pdrop", KEY_DROPOUT},
    {"resid_pdrop", KEY_DROPOUT},
    {NULL},
};

/* Globs of causal masks and tables of sines. */
static const char *const buffers_j[] = {"*attn.bias", "*attn.masked_bias", "*attn.causal_mask", "*embed_positions", NULL};

const struct family family_phi = {.name = "phi",
                                  .class = "PhiForCausalLM",
                                  .head_bias = 1,
                                  .theta = 10000,
                                  .partial = 1,
                                  .share = 0.5,
                                  .keys = {common_keys, keys},
                                  COMMON,
                                  .derive = derive,
                                  .layer = layer,
                                  .head = head};
#define AS_GPTJ                                                                                                               \
    .head_bias = 1, .fixed_rope = 1, .keys = {keys_j}, .buffers = buffers_j, .check = common_check, .embedding = embedding_j, \
    .derive = derive_j, .layer = layer_j, .head = head_j
const struct family family_gptj = {.name = "gptj", .class = "GPTJForCausalLM", AS_GPTJ};
const struct family family_codegen = {.name = "codegen", .class = "CodeGenForCausalLM", AS_GPTJ};
