/* GPT-2: layer norms, learned positions, biases everywhere, GELU; matrices are stored [in, out], with q, k and v as columns of
 * one.
 *
 * GPTBigCode (SantaCoder, StarCoder 1): one KV head, or q, k and v head by head; matrices are stored [out, in]. GPT-Neo: scores
 * are not scaled, q, k and v have no biases, and every second layer has a window. */
#include "model/family/family.h"

#include <math.h>
#include <string.h>

static enum status check(const struct model_config *c)
{
    const int one = c->family == FAMILY_GPT_BIGCODE && c->kv_heads == 1;
    if (c->heads * c->head_dim != c->dim || (c->kv_heads != c->heads && !one))
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

static struct model_linear build_qkv(struct builder *b, unsigned form)
{
    const struct model_config *c = &b->m->config;
    const int64_t out = c->dim + 2 * c->kv_heads * c->head_dim, rows[] = {c->head_dim, c->head_dim, c->head_dim};
    if (c->family == FAMILY_GPT_BIGCODE && c->kv_heads > 1)
        return build_interleaved(b, "attn.c_attn", c->dim, out, 3, rows, form, c->init_std);
    return build_linear(b, "attn.c_attn", c->dim, out, form, c->init_std);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = (c->family == FAMILY_GPT2 ? LINEAR_IN_OUT : LINEAR_OUT_IN) | LINEAR_BIAS;
    int64_t dim = c->dim, kv = c->kv_heads * c->head_dim;
    /* GPT-2 scales the maps that add to the residual stream */
    double std = c->init_std, residual_std = std / sqrt(2.0 * (double)c->layers);
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "transformer.h.", l);
    attention->norm = build_norm(b, "ln_1", NORM_LAYER);
    struct model_linear qkv = build_qkv(b, form);
    attention->attention.q = build_slice(&qkv, 0, dim);
    attention->attention.k = build_slice(&qkv, dim, kv);
    attention->attention.v = build_slice(&qkv, dim + kv, kv);
    attention->attention.o = build_linear(b, "attn.c_proj", dim, dim, form, residual_std);
    mlp->norm = build_norm(b, "ln_2", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.c_fc", dim, c->ffn, form, std);
    mlp->mlp.down = build_linear(b, "mlp.c_proj", c->ffn, dim, form, residual_std);
}

static void neo_layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    build_layer_prefix(b, "transformer.h.", l);
    attention->norm = build_norm(b, "ln_1", NORM_LAYER);
    a->q = build_linear(b, "attn.attention.q_proj", c->dim, c->dim, 0, c->init_std);
    a->k = build_linear(b, "attn.attention.k_proj", c->dim, c->dim, 0, c->init_std);
    a->v = build_linear(b, "attn.attention.v_proj", c->dim, c->dim, 0, c->init_std);
    a->o = build_linear(b, "attn.attention.out_proj", c->dim, c->dim, LINEAR_BIAS, c->init_std);
    mlp->norm = build_norm(b, "ln_2", NORM_LAYER);
    mlp->mlp.gate = build_no_linear();
    mlp->mlp.up = build_linear(b, "mlp.c_fc", c->dim, c->ffn, LINEAR_BIAS, c->init_std);
    mlp->mlp.down = build_linear(b, "mlp.c_proj", c->ffn, c->dim, LINEAR_BIAS, c->init_std);
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
        return c->family == FAMILY_GPT_NEO ? config_refuse(r, "num_heads", "hidden_size is not a multiple")
                                           : config_refuse(r, "n_head", "n_embd is not a multiple");
    c->head_dim = c->dim / c->heads;
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->ffn)
        c->ffn = 4 * min_i64(c->dim, INT32_MAX);
    return OK;
}

static const struct config_word activations[] = {
    {"gelu_new", GELU_TANH}, {"gelu_pytorch_tanh", GELU_TANH}, {"gelu", GELU_ERF}, {NULL, 0}};

static enum status read_multi_query(struct config_reader *r, struct model_config *c)
{
    int one = 1;
    TRY(config_read_bool(r, "multi_query", &one));
    c->kv_heads = one ? 1 : c->heads;
    return config_only_number(r, "num_key_value_heads", (double)c->kv_heads); /* transformers writes this key, too */
}

static json_t *write_multi_query(const struct model_config *c)
{
    return json_boolean(c->kv_heads == 1);
}

/* ---- GPT-Neo's kinds of layers: [[["global", "local"], 12]] is the two in turn, 12 times ---- */

static int is_local(const json_t *word)
{
    const char *text = json_is_string(word) ? json_string_value(word) : "";
    return strcmp(text, "local") == 0 ? 1 : strcmp(text, "global") == 0 ? 0 : -1;
}

/* Reads one entry, which describes layers from l on. Returns the number of layers described; -1 if the entry is invalid. */
static int64_t read_entry(const json_t *entry, int64_t l, struct model_config *c)
{
    const json_t *words = json_array_get(entry, 0), *times = json_array_get(entry, 1), *word;
    const int64_t n = (int64_t)json_array_size(words), left = c->layers - l, count = json_integer_value(times);
    const int64_t all = count > 0 && count <= left ? n * count : 0;
    size_t i;
    if (json_array_size(entry) != 2 || all <= 0 || all > left)
        return -1;
    json_array_foreach((json_t *)words, i, word)
    {
        const int local = is_local(word);
        if (local < 0)
            return -1;
        for (int64_t at = l + (int64_t)i; local && at < l + all; at += n)
            c->windowed[at / 8] |= (uint8_t)(1 << at % 8);
    }
    return all;
}

static enum status check_listed(const struct config_reader *r, const json_t *list, const struct model_config *c)
{
    const json_t *word;
    size_t i;
    if (list && json_array_size(list) != (size_t)c->layers)
        return config_refuse(r, "attention_layers", "must be a list with an entry for each of num_layers");
    json_array_foreach((json_t *)list, i, word)
    {
        if (is_local(word) != model_bit(c->windowed, (int64_t)i))
            return config_refuse(r, "attention_layers", "attention_types says something else");
    }
    return OK;
}

static enum status read_attention(struct config_reader *r, struct model_config *c)
{
    static const char must[] = "must be entries like [[\"global\", \"local\"], 12] for num_layers in all";
    const json_t *types = config_get(r, "attention_types"), *entry;
    int64_t l = 0, windowed = 0;
    size_t i;
    c->window = 256;
    c->attention_scale = 1.0;
    TRY(config_read_count(r, "window_size", OPTIONAL, 1, &c->window));
    if (c->layers > LAYERS_MOST || (types && !json_is_array(types)) || (!types && c->layers != 24))
        return config_refuse(r, "attention_types", must);
    for (; !types && l < c->layers; l++)
        c->windowed[l / 8] |= (uint8_t)((l % 2) << l % 8);
    json_array_foreach((json_t *)types, i, entry)
    {
        const int64_t n = read_entry(entry, l, c);
        if (n < 0)
            return config_refuse(r, "attention_types", must);
        l += n;
    }
    if (l != c->layers)
        return config_refuse(r, "attention_types", must);
    TRY(check_listed(r, config_get(r, "attention_layers"), c));
    for (l = 0; l < c->layers; l++)
        windowed += model_bit(c->windowed, l);
    c->window = windowed > 0 ? c->window : 0;
    return OK;
}

static json_t *write_attention(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_string(c->window > 0 && model_bit(c->windowed, l) ? "local" : "global"));
    return json_pack("[[o, i]]", list, 1);
}

static json_t *write_window(const struct model_config *c)
{
    return json_integer((json_int_t)(c->window > 0 ? c->window : 256));
}

#define ALIKE                                                                                     \
    {"vocab_size", KEY_REQUIRED, AT_vocab}, {"layer_norm_epsilon", KEY_FIELD, AT_norm_eps, 1e-5}, \
        {"initializer_range", KEY_FIELD, AT_init_std, 0.02},                                      \
        {"activation_function", KEY_WORD, AT_activation, GELU_TANH, activations},                 \
        {"tie_word_embeddings", KEY_FIELD, AT_tied, 1}, {"is_encoder_decoder", KEY_ONLY_FALSE},   \
        {"add_cross_attention", KEY_ONLY_FALSE},                                                  \
    {                                                                                             \
        "is_causal", KEY_ONLY_TRUE                                                                \
    }
#define GPT2_SHAPE                                                                                                              \
    {"n_positions", KEY_FIELD, AT_max_positions, 1024}, {"n_embd", KEY_REQUIRED, AT_dim}, {"n_layer", KEY_REQUIRED, AT_layers}, \
        {"n_head", KEY_REQUIRED, AT_heads}, {"n_inner", KEY_FIELD, AT_ffn}, {"scale_attn_weights", KEY_ONLY_TRUE},              \
        {"attn_pdrop", KEY_DROPOUT}, {"embd_pdrop", KEY_DROPOUT},                                                               \
    {                                                                                                                           \
        "resid_pdrop", KEY_DROPOUT                                                                                              \
    }

/* clang-format off */
static const struct config_key keys[] = {
    ALIKE,
    GPT2_SHAPE,
    {"scale_attn_by_inverse_layer_idx", KEY_ONLY_FALSE},
    {"reorder_and_upcast_attn", KEY_ONLY_FALSE},
    {NULL},
};
/* clang-format on */

static const struct config_key bigcode_keys[] = {
    ALIKE,
    GPT2_SHAPE,
    {"multi_query", KEY_SPECIAL, .read = read_multi_query, .write = write_multi_query},
    {"num_key_value_heads", KEY_SPECIAL},
    {"inference_runner", KEY_SPECIAL}, /* two keys of the makers' server */
    {"pad_key_length", KEY_SPECIAL},
    {"pre_allocate_kv_cache", KEY_SPECIAL},
    {"validate_runner_input", KEY_SPECIAL},
    {NULL},
};

static const struct config_key neo_keys[] = {
    ALIKE,
    {"max_position_embeddings", KEY_FIELD, AT_max_positions, 2048},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"num_layers", KEY_REQUIRED, AT_layers},
    {"num_heads", KEY_REQUIRED, AT_heads},
    {"intermediate_size", KEY_FIELD, AT_ffn},
    {"attention_types", KEY_SPECIAL, .read = read_attention, .write = write_attention},
    {"window_size", KEY_SPECIAL, .write = write_window},
    {"attention_layers", KEY_SPECIAL},
    {"attention_dropout", KEY_DROPOUT},
    {"embed_dropout", KEY_DROPOUT},
    {"resid_dropout", KEY_DROPOUT},
    {NULL},
};

/* Globs of causal masks. */
static const char *const buffers[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", "*h.*.attn.attention.bias",
                                      "*h.*.attn.attention.masked_bias", NULL};

#define GPT .learned_positions = 1, .buffers = buffers, .derive = derive, .check = check, .embedding = embedding, .head = head
const struct family family_gpt2 = {.name = "gpt2", .class = "GPT2LMHeadModel", .keys = {keys}, .layer = layer, GPT};
const struct family family_gpt_bigcode = {
    .name = "gpt_bigcode", .class = "GPTBigCodeForCausalLM", .keys = {bigcode_keys}, .layer = layer, GPT};
const struct family family_gpt_neo = {
    .name = "gpt_neo", .class = "GPTNeoForCausalLM", .keys = {neo_keys}, .layer = neo_layer, GPT};
