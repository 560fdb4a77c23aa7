/* Parameters and config.json keys that families with rotary positions have in common. */
#include "model/family/common.h"

#include <string.h>

/* ---- parameters ---- */

void common_embedding(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    build_prefix(b, "model.");
    b->m->embed = build_embedding(b, "embed_tokens", c->vocab, c->dim, c->init_std);
}

void common_attention(struct builder *b, struct attention_block *a, unsigned qkv_form, unsigned o_form)
{
    const struct model_config *c = &b->m->config;
    const struct attention_shape *s = build_shape(b, a);
    int64_t dim = c->dim, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    a->q = build_linear(b, "self_attn.q_proj", dim, q, qkv_form, c->init_std);
    a->k = build_linear(b, "self_attn.k_proj", dim, kv, qkv_form, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", dim, kv, qkv_form, c->init_std);
    a->o = build_linear(b, "self_attn.o_proj", q, dim, o_form, c->init_std);
}

void common_attention_of_keys(struct builder *b, struct attention_block *a, unsigned form)
{
    const struct model_config *c = &b->m->config;
    const struct attention_shape *s = build_shape(b, a);
    int64_t dim = c->dim, q = s->heads * s->head_dim;
    a->q = build_linear(b, "self_attn.q_proj", dim, q, form, c->init_std);
    a->k = a->v = build_linear(b, "self_attn.k_proj", dim, s->kv_heads * s->head_dim, form, c->init_std);
    a->o = build_linear(b, "self_attn.o_proj", q, dim, form, c->init_std);
}

void common_mlp(struct builder *b, struct mlp_block *m, unsigned form)
{
    const struct model_config *c = &b->m->config;
    m->gate = build_linear(b, "mlp.gate_proj", c->dim, c->ffn, form, c->init_std);
    m->up = build_linear(b, "mlp.up_proj", c->dim, c->ffn, form, c->init_std);
    m->down = build_linear(b, "mlp.down_proj", c->ffn, c->dim, form, c->init_std);
    m->kind = c->gate;
}

void common_normed_after(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    attention->after = build_norm(b, "post_attention_layernorm", NORM_RMS);
    mlp->after = build_norm(b, "post_feedforward_layernorm", NORM_RMS);
    common_attention(b, a, form, form);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, a->q.out);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, a->k.out);
    a->whole = 1;
    common_mlp(b, &mlp->mlp, 0);
}

void common_ungated_mlp(struct builder *b, struct mlp_block *m, unsigned form)
{
    const struct model_config *c = &b->m->config;
    m->gate = build_no_linear();
    m->up = build_linear(b, "mlp.up_proj", c->dim, c->ffn, form, c->init_std);
    m->down = build_linear(b, "mlp.down_proj", c->ffn, c->dim, form, c->init_std);
}

void common_fused_mlp(struct builder *b, struct mlp_block *m)
{
    const struct model_config *c = &b->m->config;
    struct model_linear fused = build_linear(b, "mlp.gate_up_proj", c->dim, 2 * c->ffn, 0, c->init_std);
    m->gate = build_slice(&fused, 0, c->ffn);
    m->up = build_slice(&fused, c->ffn, c->ffn);
    m->down = build_linear(b, "mlp.down_proj", c->ffn, c->dim, 0, c->init_std);
    m->kind = c->gate;
}

void common_head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS);
}

const char *const common_buffers[] = {"*rotary_emb.inv_freq", "*rotary_emb.cos_cached", "*rotary_emb.sin_cached", NULL};

/* ---- config.json ---- */

enum status common_derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->head_dim && c->dim % c->heads)
        return config_refuse(r, "num_attention_heads", "hidden_size is not a multiple, and head_dim is missing");
    if (!c->head_dim)
        c->head_dim = c->dim / c->heads;
    return OK;
}

enum status common_check(const struct model_config *c)
{
    (void)c; /* rotary positions are checked for every family */
    return OK;
}

const struct config_word common_silu[] = {{"silu", GATE_SILU}, {"swish", GATE_SILU}, {NULL, 0}};
const struct config_word common_gelu[] = {
    {"gelu_pytorch_tanh", GATE_GELU_TANH}, {"gelu_new", GATE_GELU_TANH}, {"gelu", GATE_GELU_ERF}, {"silu", GATE_SILU}, {NULL, 0}};

const struct config_word common_ungated[] = {
    {"relu2", RELU_SQUARED}, {"gelu_new", GELU_TANH}, {"gelu", GELU_ERF}, {"gelu_pytorch_tanh", GELU_TANH}, {NULL, 0}};

/* Clears the window if no layer has one, and the layers' bits if there is no window. */
static void settle_windows(struct model_config *c)
{
    int64_t windowed = 0;
    for (int64_t l = 0; l < c->layers && l < LAYERS_MOST; l++)
        windowed += model_bit(c->windowed, l);
    if (windowed == 0)
        c->window = 0;
    if (c->window == 0)
        memset(c->windowed, 0, sizeof c->windowed);
}

/* Refuses windowed layers without a window, as transformers does. listed: layers have windows even without layer_types. */
static enum status check_missing_window(struct config_reader *r, const struct model_config *c, int listed)
{
    const json_t *types = json_object_get(r->object, "layer_types");
    if (types && !json_is_null(types))
        listed = 1;
    for (int64_t l = 0; listed && c->window == 0 && l < min_i64(c->layers, LAYERS_MOST); l++)
        if (model_bit(c->windowed, l))
            return config_refuse(r, "sliding_window",
                                 "layers of layer_types' sliding_attention need one; full_attention has none");
    return OK;
}

enum status common_read_pattern(struct config_reader *r, struct model_config *c, int64_t absent, int64_t period)
{
    c->window = json_object_get(r->object, "sliding_window") ? 0 : absent;
    TRY(config_read_count(r, "sliding_window", OPTIONAL, 1, &c->window));
    TRY(config_read_layer_types(r, c, period));
    TRY(check_missing_window(r, c, period != 0));
    settle_windows(c);
    return OK;
}

/* Reads a window that all layers have, or none. transformers ignores layer_types in these families, so other lists are refused. */
enum status common_read_window(struct config_reader *r, struct model_config *c)
{
    TRY(config_read_count(r, "sliding_window", OPTIONAL, 1, &c->window));
    TRY(config_read_layer_types(r, c, 0));
    for (int64_t l = 0; c->window > 0 && l < min_i64(c->layers, LAYERS_MOST); l++)
        if (!model_bit(c->windowed, l))
            return config_refuse(r, "layer_types", "in this family all layers have the sliding_window, or none with null");
    settle_windows(c);
    return OK;
}

/* Reads use_sliding_window and max_window_layers. Unless layer_types lists the windowed layers, these are the layers from
 * max_window_layers on; in SmolLM3, the layers without positions. */
static enum status read_use(struct config_reader *r, struct model_config *c)
{
    const json_t *types = json_object_get(r->object, "layer_types");
    const int listed = types && !json_is_null(types);
    int64_t first = 28;
    int use = 0;
    TRY(config_only_bool(r, "use_mrope", 0));
    TRY(config_read_bool(r, "use_sliding_window", &use));
    TRY(config_read_count(r, "max_window_layers", OPTIONAL, 0, &first));
    for (int64_t l = 0; l < min_i64(first, c->layers) && !listed; l++)
        c->windowed[l / 8] &= (uint8_t) ~(1 << l % 8);
    if (c->family == FAMILY_SMOLLM3 && !listed)
        memcpy(c->windowed, c->unrotated, sizeof c->windowed);
    for (int64_t l = 0; l < c->layers && listed && !use; l++)
        if (model_bit(c->windowed, l))
            return config_refuse(r, "layer_types", "use_sliding_window says otherwise");
    if (!use)
        c->window = 0;
    return OK;
}

enum status common_read_used_window(struct config_reader *r, struct model_config *c)
{
    c->window = json_object_get(r->object, "sliding_window") || c->family == FAMILY_SMOLLM3 ? 0 : 4096;
    TRY(config_read_count(r, "sliding_window", OPTIONAL, 1, &c->window));
    TRY(config_read_layer_types(r, c, 0));
    TRY(check_missing_window(r, c, 0));
    TRY(read_use(r, c));
    settle_windows(c);
    return OK;
}

json_t *common_write_window(const struct model_config *c)
{
    return c->window ? json_integer(c->window) : json_null();
}

json_t *common_write_use(const struct model_config *c)
{
    return json_boolean(c->window > 0);
}

json_t *common_write_first(const struct model_config *c)
{
    int64_t first = 0;
    while (first < c->layers && !(c->window && model_bit(c->windowed, first)))
        first++;
    return json_integer(first);
}

enum status common_read_theta(struct config_reader *r, struct model_config *c)
{
    c->rope_theta = r->family->theta > 0.0 ? r->family->theta : 10000.0;
    return config_read_real(r, r->family->base_key ? r->family->base_key : "rope_theta", OPTIONAL, &c->rope_theta);
}

json_t *common_write_theta(const struct model_config *c)
{
    return json_real(c->rope_theta);
}

json_t *common_write_share(const struct model_config *c)
{
    return json_real(c->rope_share > 0.0 ? c->rope_share : 1.0);
}

/* Accepts false, and Gemma 4's "vision", which concerns tokens of images only. */
enum status common_read_bidirectional(struct config_reader *r, struct model_config *c)
{
    const json_t *value = config_get(r, "use_bidirectional_attention");
    (void)c;
    return value && json_is_string(value) && strcmp(json_string_value(value), "vision") == 0
               ? OK
               : config_only_bool(r, "use_bidirectional_attention", 0);
}

const struct config_key common_keys[] = {
    {"vocab_size", KEY_REQUIRED, AT_vocab},
    {"hidden_size", KEY_REQUIRED, AT_dim},
    {"intermediate_size", KEY_REQUIRED, AT_ffn},
    {"num_hidden_layers", KEY_REQUIRED, AT_layers},
    {"num_attention_heads", KEY_REQUIRED, AT_heads},
    {"num_key_value_heads", KEY_FIELD, AT_kv_heads},
    {"head_dim", KEY_FIELD, AT_head_dim},
    {"max_position_embeddings", KEY_FIELD, AT_max_positions},
    {"initializer_range", KEY_FIELD, AT_init_std, 0.02},
    {"rope_theta", KEY_SPECIAL, .read = common_read_theta, .write = common_write_theta},
    {"rope_scaling", KEY_SPECIAL, .read = config_read_rope, .write = config_write_rope},
    {"rope_interleaved", KEY_ONLY_FALSE},
    {"is_encoder_decoder", KEY_ONLY_FALSE},
    {"add_cross_attention", KEY_ONLY_FALSE},
    {"is_causal", KEY_ONLY_TRUE},
    {"use_bidirectional_attention", KEY_SPECIAL, .read = common_read_bidirectional},
    {"per_layer_config", KEY_SPECIAL, .read = config_read_own},
    {"attention_dropout", KEY_DROPOUT},
    {NULL},
};
