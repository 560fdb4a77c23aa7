/* Falcon. Attention and MLP stand side by side, after one layer norm (7B, 11B) or one each (40B, 180B), or one after the other.
 * The MLP has two maps.
 *
 * q, k and v are one matrix, stored KV head by KV head: its queries, its key, its value. */
#include "model/family/common.h"

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "transformer.");
    b->m->embed = build_embedding(b, "word_embeddings", c->vocab, c->dim, c->init_std);
}

static void build_norms(struct builder *b, struct model_block *attention, struct model_block *mlp)
{
    const struct model_config *c = &b->m->config;
    mlp->parallel = c->parallel;
    if (c->parallel && c->norms == 1) {
        attention->norm = mlp->norm = build_norm(b, "input_layernorm", NORM_LAYER);
        return;
    }
    attention->norm = build_norm(b, c->parallel ? "ln_attn" : "input_layernorm", NORM_LAYER);
    mlp->norm = build_norm(b, c->parallel ? "ln_mlp" : "post_attention_layernorm", NORM_LAYER);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    const int64_t dim = c->dim, kv = c->kv_heads * c->head_dim,
                  rows[] = {c->heads / c->kv_heads * c->head_dim, c->head_dim, c->head_dim};
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    static const char fused[] = "self_attention.query_key_value";
    build_layer_prefix(b, "transformer.h.", l);
    build_norms(b, attention, mlp);
    struct model_linear qkv = c->kv_heads == 1 ? build_linear(b, fused, dim, dim + 2 * kv, form, c->init_std)
                                               : build_interleaved(b, fused, dim, dim + 2 * kv, 3, rows, form, c->init_std);
    a->q = build_slice(&qkv, 0, dim);
    a->k = build_slice(&qkv, dim, kv);
    a->v = build_slice(&qkv, dim + kv, kv);
    a->o = build_linear(b, "self_attention.dense", dim, dim, form, c->init_std);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.dense_h_to_4h", dim, c->ffn, form, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.dense_4h_to_h", c->ffn, dim, form, c->init_std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "transformer.ln_f", NORM_LAYER);
}

/* ---- config.json ---- */

/* Reads the number of KV heads. In the newer architecture a key gives it; the older one has 1, or with multi_query false as many
 * as heads. */
static enum status read_architecture(struct config_reader *r, struct model_config *c)
{
    int newer = 0, multi_query = 1;
    int64_t norms = 0;
    TRY(config_read_bool(r, "new_decoder_architecture", &newer));
    TRY(config_read_bool(r, "multi_query", &multi_query));
    TRY(config_read_count(r, "num_ln_in_parallel_attn", OPTIONAL, 1, &norms));
    TRY(config_read_count(r, "num_kv_heads", OPTIONAL, 1, &c->kv_heads));
    if (norms > 2 || (norms == 2 && !(newer && c->parallel)))
        return config_refuse(r, "num_ln_in_parallel_attn", "supported: 1, or 2 with new_decoder_architecture");
    if (newer && !c->parallel)
        return config_refuse(r, "parallel_attn", "with new_decoder_architecture only true is supported");
    if (!newer && multi_query)
        c->kv_heads = 1;
    if (!newer && !multi_query && c->kv_heads && c->kv_heads != c->heads)
        return config_refuse(r, "num_kv_heads",
                             "without multi_query and new_decoder_architecture it must be num_attention_heads");
    c->norms = newer && norms != 1 ? 2 : 1;
    return OK;
}

static int is_newer(const struct model_config *c)
{
    return c->norms == 2 || (c->kv_heads != 1 && c->kv_heads != c->heads);
}

static json_t *write_newer(const struct model_config *c)
{
    return json_boolean(is_newer(c));
}

static json_t *write_multi_query(const struct model_config *c)
{
    return json_boolean(c->kv_heads == 1);
}

static json_t *write_kv_heads(const struct model_config *c)
{
    return json_integer((json_int_t)c->kv_heads);
}

static json_t *write_norms(const struct model_config *c)
{
    return is_newer(c) ? json_integer(c->norms) : json_null();
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (c->dim % c->heads)
        return config_refuse(r, "num_attention_heads", "hidden_size is not a multiple");
    if (!c->ffn)
        c->ffn = 4 * min_i64(c->dim, INT32_MAX);
    return common_derive(r, c);
}

static const struct config_word activations[] = {
    {"gelu", GELU_ERF}, {"gelu_pytorch_tanh", GELU_TANH}, {"gelu_new", GELU_TANH}, {NULL, 0}};

static const struct config_key keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"ffn_hidden_size", KEY_FIELD, AT_ffn},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions, 2048},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"activation", KEY_WORD, AT_activation, GELU_ERF, activations},
    {"layer_norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"bias", KEY_FIELD, AT_attention_bias, 0},
    {"parallel_attn", KEY_FIELD, AT_parallel, 1},
    {"new_decoder_architecture", KEY_SPECIAL, .read = read_architecture, .write = write_newer},
    {"multi_query", KEY_SPECIAL, .write = write_multi_query},
    {"num_kv_heads", KEY_SPECIAL, .write = write_kv_heads},
    {"num_ln_in_parallel_attn", KEY_SPECIAL, .write = write_norms},
    {"alibi", KEY_ONLY_FALSE},
    {"apply_residual_connection_post_layernorm", KEY_ONLY_FALSE},
    {"ff_factor", KEY_SPECIAL}, /* ratio to hidden_size, which ffn_hidden_size gives already */
    {"rope_theta", KEY_SPECIAL, .read = common_read_theta, .write = common_write_theta},
    {"rope_scaling", KEY_SPECIAL, .read = config_read_rope, .write = config_write_rope},
    {"is_causal", KEY_ONLY_TRUE},
    {"attention_dropout", KEY_DROPOUT},
    {"hidden_dropout", KEY_DROPOUT},
    {NULL},
};

const struct family family_falcon = {.name = "falcon",
                                     .class = "FalconForCausalLM",
                                     .theta = 10000,
                                     .keys = {keys},
                                     .buffers = common_buffers,
                                     .check = common_check,
                                     .embedding = embedding,
                                     .derive = derive,
                                     .layer = layer,
                                     .head = head};
