/* Gemma 1 to 4 (text) and VaultGemma: norms before each block, in Gemma 2 to 4 after it, too; GeGLU; embeddings times sqrt(hidden
 * size). Norms multiply by 1 + w, except in Gemma 4.
 *
 * Gemma 2 and VaultGemma have windows and may cap scores and logits. Gemma 3 has norms of q and k of each head, and another
 * rotary base in windowed layers.
 *
 * Gemma 4 also has a norm of v. Its layers without a window have larger and fewer KV heads, whose keys may serve as values. Each
 * layer's output is multiplied by a number. */
#include "model/family/common.h"

#include <math.h>

static void embedding(struct builder *b)
{
    common_embedding(b);
    b->m->rounds_embedding_scale = 1;
}

/* Returns the family's kind of norm; Gemma 4's multiply by w, all others by 1 + w. */
static enum norm_kind norm_of(const struct model_config *c)
{
    return c->family == FAMILY_GEMMA4 ? NORM_RMS : NORM_RMS_ONE;
}

/* Declares Gemma 4's attention, without a map of values where these come from the map of keys. */
static void build_gemma4(struct builder *b, int l, struct attention_block *a, unsigned form)
{
    const struct model_config *c = &b->m->config;
    if (c->k_is_v && !model_bit(c->windowed, l))
        common_attention_of_keys(b, a, form);
    else
        common_attention(b, a, form, form);
    a->v_norm = build_bare_norm();
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const enum norm_kind norm = norm_of(c);
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", norm);
    mlp->norm = build_norm(b, c->family == FAMILY_GEMMA ? "post_attention_layernorm" : "pre_feedforward_layernorm", norm);
    if (c->family == FAMILY_GEMMA2 || c->family == FAMILY_GEMMA3 || c->family == FAMILY_GEMMA4) {
        attention->after = build_norm(b, "post_attention_layernorm", norm);
        mlp->after = build_norm(b, "post_feedforward_layernorm", norm);
    }
    if (c->family == FAMILY_GEMMA4)
        build_gemma4(b, l, &attention->attention, form);
    else
        common_attention(b, &attention->attention, form, form);
    if (c->family == FAMILY_GEMMA3 || c->family == FAMILY_GEMMA4) {
        const int64_t head_dim = build_shape(b, &attention->attention)->head_dim;
        attention->attention.q_norm = build_norm_of(b, "self_attn.q_norm", norm, head_dim);
        attention->attention.k_norm = build_norm_of(b, "self_attn.k_norm", norm, head_dim);
    }
    common_mlp(b, &mlp->mlp, 0);
    if (c->family == FAMILY_GEMMA4)
        b->m->layers[l].scalar = build_constant(b, "layer_scalar");
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", norm_of(&b->m->config));
}

/* ---- config.json ---- */

static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    int64_t period = c->family == FAMILY_GEMMA3 ? 6 : 2;
    if (c->family == FAMILY_GEMMA3) {
        TRY(config_read_count(r, "sliding_window_pattern", OPTIONAL, 1, &period));
        TRY(config_read_count(r, "_sliding_window_pattern", OPTIONAL, 1, &period));
    }
    return common_read_pattern(r, c, 4096, period);
}

/* Reads query_pre_attn_scalar, which replaces the head size in the scale of scores. */
static enum status read_scale(struct config_reader *r, struct model_config *c)
{
    double scalar = 256.0;
    TRY(config_read_real(r, "query_pre_attn_scalar", OPTIONAL, &scalar));
    c->attention_scale = 1.0 / sqrt(scalar);
    c->embedding_scale = sqrt((double)c->dim);
    return OK;
}

static json_t *write_scale(const struct model_config *c)
{
    double scalar = 1.0 / (c->attention_scale * c->attention_scale), whole = round(scalar);
    return fabs(scalar - whole) < 1e-9 * whole ? json_integer((json_int_t)whole) : json_real(scalar);
}

/* Reads a cap; without the key the cap is that of the family's released models. */
static enum status read_cap(struct config_reader *r, const char *key, double absent, double *cap)
{
    *cap = json_object_get(r->object, key) ? 0.0 : absent;
    return config_read_real(r, key, OPTIONAL, cap);
}

/* Reads Gemma 3's caps. transformers caps no scores of Gemma 3, and no logits of the multimodal model, whatever the keys say. */
static enum status read_gemma3_caps(struct config_reader *r, struct model_config *c)
{
    TRY(config_only_null(r, "attn_logit_softcapping"));
    return c->wrapped ? config_only_null(r, "final_logit_softcapping")
                      : read_cap(r, "final_logit_softcapping", 0.0, &c->logit_cap);
}

static enum status read_caps(struct config_reader *r, struct model_config *c)
{
    if (c->family == FAMILY_GEMMA3)
        return read_gemma3_caps(r, c);
    TRY(read_cap(r, "attn_logit_softcapping", 50.0, &c->attention_cap));
    return read_cap(r, "final_logit_softcapping", 30.0, &c->logit_cap);
}

static enum status read_gemma4_cap(struct config_reader *r, struct model_config *c)
{
    return read_cap(r, "final_logit_softcapping", 0.0, &c->logit_cap);
}

static json_t *write_nothing(const struct model_config *c)
{
    (void)c;
    return json_integer(0);
}

static json_t *cap_json(double cap)
{
    return cap > 0.0 ? json_real(cap) : json_null();
}

static json_t *write_attention_cap(const struct model_config *c)
{
    return cap_json(c->attention_cap);
}

static json_t *write_logit_cap(const struct model_config *c)
{
    return cap_json(c->logit_cap);
}

/* Reads the base of windowed layers; a base already read from rope_parameters must agree. */
static enum status read_local_theta(struct config_reader *r, struct model_config *c)
{
    const double before = c->rope_local_theta;
    if (c->rope_local_theta == 0.0)
        c->rope_local_theta = 10000.0;
    TRY(config_read_real(r, "rope_local_base_freq", OPTIONAL, &c->rope_local_theta));
    return before > 0.0 && c->rope_local_theta != before
               ? config_refuse(r, "rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta says something else")
               : OK;
}

static json_t *write_local_theta(const struct model_config *c)
{
    return json_real(c->rope_local_theta);
}

/* Reads hidden_activation. Its older name hidden_act is checked and ignored, as in transformers. */
static enum status read_activation(struct config_reader *r, struct model_config *c)
{
    int gate = GATE_GELU_TANH, ignored;
    TRY(config_read_word(r, "hidden_act", common_gelu, &ignored));
    TRY(config_read_word(r, "hidden_activation", common_gelu, &gate));
    c->gate = (enum gate_kind)gate;
    return OK;
}

static json_t *write_activation(const struct model_config *c)
{
    return json_string(c->gate == GATE_GELU_TANH ? "gelu_pytorch_tanh" : c->gate == GATE_GELU_ERF ? "gelu" : "silu");
}

/* Activations of Gemma 1: transformers computes every gelu as tanh's. */
static const struct config_word gemma_words[] = {{"gelu_pytorch_tanh", GATE_GELU_TANH},
                                                 {"gelu", GATE_GELU_TANH},
                                                 {"gelu_new", GATE_GELU_TANH},
                                                 {"silu", GATE_SILU},
                                                 {NULL, 0}};

static enum status read_embedding_scale(struct config_reader *r, struct model_config *c)
{
    c->embedding_scale = sqrt((double)c->dim);
    return config_only_null(r, "sliding_window");
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->family == FAMILY_GEMMA ? 16 : 4;
    if (!c->head_dim)
        c->head_dim = 256;
    if (!c->max_positions)
        c->max_positions = c->family == FAMILY_GEMMA3 ? 131072 : 8192;
    return common_derive(r, c);
}

/* ---- Gemma 4 ---- */

/* Reads Gemma 4's windows: every sixth layer and the last one have none. */
static enum status read_gemma4_windows(struct config_reader *r, struct model_config *c)
{
    TRY(common_read_pattern(r, c, 512, 6));
    if (c->layers >= 1 && c->layers <= LAYERS_MOST)
        c->windowed[(c->layers - 1) / 8] &= (uint8_t) ~(1 << (c->layers - 1) % 8);
    return OK;
}

/* Refuses the embeddings per layer that E2B and E4B have beside a dense model. */
static enum status read_per_layer_input(struct config_reader *r, struct model_config *c)
{
    int64_t size = 256;
    (void)c;
    TRY(config_read_count(r, "hidden_size_per_layer_input", OPTIONAL, 0, &size));
    return size > 0 ? config_refuse(r, "hidden_size_per_layer_input",
                                    "embeddings for each layer (Gemma 4 E2B, E4B) are not supported: 0 says that there are none")
                    : OK;
}

static enum status read_shared_layers(struct config_reader *r, struct model_config *c)
{
    int64_t shared = 0;
    (void)c;
    TRY(config_read_count(r, "num_kv_shared_layers", OPTIONAL, 0, &shared));
    return shared > 0
               ? config_refuse(r, "num_kv_shared_layers", "layers that attend other layers' keys and values are not supported")
               : OK;
}

static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    int experts = 0;
    (void)c;
    TRY(config_read_bool(r, "enable_moe_block", &experts));
    return experts ? config_refuse(r, "enable_moe_block", "experts are not supported") : OK;
}

/* Reads the heads of layers without a window, unless per_layer_config gives heads layer by layer. */
static enum status read_global_heads(struct config_reader *r, struct model_config *c)
{
    struct layer_config own = {.head_dim = 512};
    const json_t *layers = json_object_get(r->object, "per_layer_config");
    TRY(config_read_count(r, "global_head_dim", OPTIONAL, 1, &own.head_dim));
    TRY(config_read_count(r, "num_global_key_value_heads", OPTIONAL, 1, &own.kv_heads));
    if (!c->k_is_v)
        own.kv_heads = 0;
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST) && !layers; l++)
        if (!model_bit(c->windowed, l))
            TRY(config_add_own(r, c, l, &own));
    return OK;
}

static enum status derive_gemma4(struct config_reader *r, struct model_config *c)
{
    if (!json_is_object(json_object_get(r->object, "rope_parameters"))) {
        c->rope = ROPE_PROPORTIONAL;
        c->rope_factor = 1.0;
        c->rope_share = 0.25;
        c->rope_local_theta = 10000.0;
    }
    c->attention_scale = 1.0;
    c->embedding_scale = sqrt((double)c->dim);
    TRY(derive(r, c));
    return read_global_heads(r, c);
}

#define ALIKE                                                                                           \
    {"hidden_activation", KEY_SPECIAL, .read = read_activation, .write = write_activation},             \
        {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6}, {"tie_word_embeddings", KEY_FIELD, AT_tied, 1}, \
        {"attention_bias", KEY_FIELD, AT_attention_bias, 0},                                            \
        {"query_pre_attn_scalar", KEY_SPECIAL, .read = read_scale, .write = write_scale},               \
        {"attn_logit_softcapping", KEY_SPECIAL, .read = read_caps, .write = write_attention_cap},       \
        {"final_logit_softcapping", KEY_SPECIAL, .write = write_logit_cap}, WINDOW_KEY(read_windows), LISTED_TYPES_KEY

/* Defaults of transformers' Gemma3TextConfig. */
static const struct config_implied gemma3_implied[] = {{AT_vocab, 262208}, {AT_dim, 2304}, {AT_ffn, 9216},
                                                       {AT_layers, 26},    {AT_heads, 8},  {NO_FIELD, 0}};

static const struct config_key gemma_keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_GELU_TANH, gemma_words},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"sliding_window", KEY_SPECIAL, .read = read_embedding_scale},
    {"hidden_activation", KEY_SPECIAL}, /* newer name of hidden_act, which transformers ignores here */
    {NULL},
};
/* Defaults of transformers' Gemma4TextConfig. */
static const struct config_implied gemma4_implied[] = {{AT_vocab, 262144}, {AT_dim, 2304}, {AT_ffn, 9216},
                                                       {AT_layers, 30},    {AT_heads, 8},  {NO_FIELD, 0}};

static const struct config_key gemma2_keys[] = {ALIKE, {NULL}};
static const struct config_key gemma3_keys[] = {
    ALIKE, {"rope_local_base_freq", KEY_SPECIAL, .read = read_local_theta, .write = write_local_theta}, {NULL}};

static const struct config_key gemma4_keys[] = {
    {"hidden_activation", KEY_SPECIAL, .read = read_activation, .write = write_activation},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"final_logit_softcapping", KEY_SPECIAL, .read = read_gemma4_cap, .write = write_logit_cap},
    {"sliding_window", KEY_SPECIAL, .read = read_gemma4_windows, .write = common_write_window},
    LISTED_TYPES_KEY,
    {"attention_k_eq_v", KEY_FIELD, AT_k_is_v, 0},
    {"global_head_dim", KEY_SPECIAL}, /* read once the heads of all layers are known */
    {"num_global_key_value_heads", KEY_SPECIAL},
    ROPE_BY_KIND_KEY,
    {"hidden_size_per_layer_input", KEY_SPECIAL, .read = read_per_layer_input, .write = write_nothing},
    {"num_kv_shared_layers", KEY_SPECIAL, .read = read_shared_layers},
    {"enable_moe_block", KEY_SPECIAL, .read = read_experts},
    {"vocab_size_per_layer_input", KEY_SPECIAL}, /* concern parts that the model does not have */
    {"use_double_wide_mlp", KEY_SPECIAL},
    {"num_experts", KEY_SPECIAL},
    {"top_k_experts", KEY_SPECIAL},
    {"moe_intermediate_size", KEY_SPECIAL},
    {NULL}};

#define FAMILY \
    .buffers = common_buffers, .check = common_check, .embedding = embedding, .derive = derive, .layer = layer, .head = head
const struct family family_gemma = {
    .name = "gemma", .class = "GemmaForCausalLM", .keys = {common_keys, gemma_keys}, .theta = 10000, FAMILY};
const struct family family_vaultgemma = {
    .name = "vaultgemma", .class = "VaultGemmaForCausalLM", .keys = {common_keys, gemma2_keys}, .theta = 10000, FAMILY};
const struct family family_gemma2 = {
    .name = "gemma2", .class = "Gemma2ForCausalLM", .keys = {common_keys, gemma2_keys}, .theta = 10000, FAMILY};
const struct family family_gemma3 = {.name = "gemma3_text",
                                     .class = "Gemma3ForCausalLM",
                                     .keys = {common_keys, gemma3_keys},
                                     .theta = 1000000,
                                     .implied = gemma3_implied,
                                     FAMILY};
const struct family family_gemma4 = {.name = "gemma4_text",
                                     .class = "Gemma4ForCausalLM",
                                     .keys = {common_keys, gemma4_keys},
                                     .theta = 1000000,
                                     .partial = 1,
                                     .implied = gemma4_implied,
                                     .buffers = common_buffers,
                                     .check = common_check,
                                     .embedding = embedding,
                                     .derive = derive_gemma4,
                                     .layer = layer,
                                     .head = head};
