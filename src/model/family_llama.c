/* Llama, Mistral and Qwen2: RMS norms, rotary positions, grouped heads, SwiGLU; Qwen2 with biases on q, k and v. */
#include "model/family.h"

#include <string.h>

static enum status check(const struct model_config *c)
{
    if (c->head_dim % 2)
        return status_fail(ERR_INVALID, "model: head size is %lld, must be even for rotary positions", (long long)c->head_dim);
    return OK;
}

static void embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "model.");
    b->m->embed = build_matrix(b, "embed_tokens", c->vocab, c->dim, c->init_std);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    int64_t dim = c->dim, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    unsigned qkv_form = LINEAR_OUT_IN | (c->family == FAMILY_QWEN2 ? LINEAR_BIAS : 0);
    double std = c->init_std;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    attention->attention.q = build_linear(b, "self_attn.q_proj", dim, q, qkv_form, std);
    attention->attention.k = build_linear(b, "self_attn.k_proj", dim, kv, qkv_form, std);
    attention->attention.v = build_linear(b, "self_attn.v_proj", dim, kv, qkv_form, std);
    attention->attention.o = build_linear(b, "self_attn.o_proj", q, dim, LINEAR_OUT_IN, std);
    mlp->mlp.gate = build_linear(b, "mlp.gate_proj", dim, c->ffn, LINEAR_OUT_IN, std);
    mlp->mlp.up = build_linear(b, "mlp.up_proj", dim, c->ffn, LINEAR_OUT_IN, std);
    mlp->mlp.down = build_linear(b, "mlp.down_proj", c->ffn, dim, LINEAR_OUT_IN, std);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS);
}

/* ---- config.json ---- */

/* Whether Qwen2's layers slide: those from max_window_layers on, if use_sliding_window says so; "layer_types" says it layer by
 * layer. One answer for all layers, or an error. */
static enum status read_qwen2_layers(struct config_reader *r, const struct model_config *c, int *windowed)
{
    int64_t first = 28;
    size_t i, sliding = 0;
    int use = 0;
    TRY(config_only_bool(r, "use_mrope", 0));
    TRY(config_read_bool(r, "use_sliding_window", &use));
    TRY(config_read_count(r, "max_window_layers", OPTIONAL, 0, &first));
    const json_t *types = config_get(r, "layer_types"), *type;
    if (!types) {
        *windowed = use && first == 0;
        if (use && first > 0 && first < c->layers)
            return config_refuse(r, "max_window_layers",
                                 "that many layers attend everything and the others a window; only the same in every layer is "
                                 "supported (0, or all)");
        return OK;
    }
    json_array_foreach((json_t *)types, i, type)
    {
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        sliding += strcmp(text, "sliding_attention") == 0;
        if (strcmp(text, "full_attention") != 0 && strcmp(text, "sliding_attention") != 0)
            return config_refuse(r, "layer_types", "supported: full_attention, sliding_attention");
    }
    *windowed = sliding > 0;
    if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers || (sliding > 0 && sliding < json_array_size(types)))
        return config_refuse(r, "layer_types", "only one kind of attention in all layers is supported");
    return *windowed && !use ? config_refuse(r, "layer_types", "use_sliding_window says otherwise") : OK;
}

/* Without the key transformers takes a window of 4096; null is none. */
static enum status read_window(struct config_reader *r, struct model_config *c)
{
    int64_t window = json_object_get(r->object, "sliding_window") ? 0 : 4096;
    int windowed = 1;
    TRY(config_read_count(r, "sliding_window", OPTIONAL, 1, &window));
    if (c->family == FAMILY_QWEN2)
        TRY(read_qwen2_layers(r, c, &windowed));
    c->window = windowed ? window : 0;
    return OK;
}

static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "sliding_window");
}

/* Qwen2.5-1M: vLLM attends in chunks beyond the original length; transformers attends everything, and so does ltrain. */
static enum status read_dual_chunks(struct config_reader *r, struct model_config *c)
{
    const json_t *chunks = config_get(r, "dual_chunk_attention_config"),
                 *original = json_object_get(chunks, "original_max_position_embeddings");
    if (!chunks)
        return OK;
    if (!json_is_integer(original) || json_integer_value(original) < 1)
        return config_refuse(r, "dual_chunk_attention_config",
                             "original_max_position_embeddings must be a positive whole number");
    c->unchunked = (int64_t)json_integer_value(original);
    return OK;
}

static json_t *write_window(const struct model_config *c)
{
    return c->window ? json_integer(c->window) : json_null();
}

static json_t *write_windowed(const struct model_config *c)
{
    return json_boolean(c->window > 0);
}

static json_t *write_window_layers(const struct model_config *c)
{
    return json_integer(c->window ? 0 : c->layers);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    static const int64_t positions[] = {[FAMILY_LLAMA] = 2048, [FAMILY_MISTRAL] = 4096 * 32, [FAMILY_QWEN2] = 32768};
    if (!c->kv_heads && c->family != FAMILY_LLAMA)
        return config_missing(r, "num_key_value_heads");
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->max_positions)
        c->max_positions = positions[c->family];
    if (!c->head_dim && c->dim % c->heads)
        return config_refuse(r, "num_attention_heads", "hidden_size is not a multiple, and head_dim is missing");
    if (!c->head_dim)
        c->head_dim = c->dim / c->heads;
    return OK;
}

static const struct config_word activations[] = {{"silu", 0}, {"swish", 0}, {NULL, 0}};

static const struct config_key keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"intermediate_size", KEY_REQUIRED, AT_ffn},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"num_key_value_heads", KEY_FIELD, AT_kv_heads},
    {"head_dim", KEY_FIELD, AT_head_dim},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions},
    {"hidden_act", KEY_WORD, NO_FIELD, .words = activations},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"rope_theta", KEY_FIELD, AT_rope_theta, 10000},
    {"rope_scaling", KEY_SPECIAL, .read = config_read_rope, .write = config_write_rope},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_ONLY_FALSE},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"rope_interleaved", KEY_ONLY_FALSE},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"partial_rotary_factor", KEY_ONLY_ONE},
    {"pretraining_tp", KEY_ONLY_ONE},
    {"attention_dropout", KEY_DROPOUT},
    {NULL},
};
static const struct config_key llama_keys[] = {
    {"use_sliding_window", KEY_ONLY_FALSE},
    {"sliding_window", KEY_SPECIAL, .read = read_no_window},
    {"attention_bias", KEY_FALSE},
    {"mlp_bias", KEY_FALSE},
    {NULL},
};
static const struct config_key mistral_keys[] = {
    {"sliding_window", KEY_SPECIAL, .read = read_window, .write = write_window},
    {NULL},
};
static const struct config_key qwen2_keys[] = {
    {"sliding_window", KEY_SPECIAL, .read = read_window, .write = write_window},
    {"use_sliding_window", KEY_SPECIAL, .write = write_windowed},
    {"max_window_layers", KEY_SPECIAL, .write = write_window_layers},
    {"dual_chunk_attention_config", KEY_SPECIAL, .read = read_dual_chunks},
    {NULL},
};

static const char *const buffers[] = {"*rotary_emb.inv_freq", "*rotary_emb.cos_cached", "*rotary_emb.sin_cached", NULL};

#define ALIKE .buffers = buffers, .derive = derive, .check = check, .embedding = embedding, .layer = layer, .head = head
const struct family family_llama = {.name = "llama", .class = "LlamaForCausalLM", .keys = {keys, llama_keys}, ALIKE};
const struct family family_mistral = {.name = "mistral", .class = "MistralForCausalLM", .keys = {keys, mistral_keys}, ALIKE};
const struct family family_qwen2 = {.name = "qwen2", .class = "Qwen2ForCausalLM", .keys = {keys, qwen2_keys}, ALIKE};
