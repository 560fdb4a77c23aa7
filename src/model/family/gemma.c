/* Gemma 1 to 3 (text) and VaultGemma: norms before each block, in Gemma 2 and 3 after it, too; GeGLU; embeddings times sqrt(hidden
 * size). Norms multiply by 1 + w.
 *
 * Gemma 2 and VaultGemma have windows and may cap scores and logits. Gemma 3 has norms of q and k of each head, and another
 * rotary base in windowed layers. */
#include "model/family/gemma.h"

#include <math.h>

void gemma_embedding(struct builder *b)
{
    common_embedding(b);
    b->m->rounds_embedding_scale = 1;
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    mlp->norm = build_norm(b, c->family == FAMILY_GEMMA ? "post_attention_layernorm" : "pre_feedforward_layernorm", NORM_RMS_ONE);
    if (c->family == FAMILY_GEMMA2 || c->family == FAMILY_GEMMA3) {
        attention->after = build_norm(b, "post_attention_layernorm", NORM_RMS_ONE);
        mlp->after = build_norm(b, "post_feedforward_layernorm", NORM_RMS_ONE);
    }
    common_attention(b, &attention->attention, form, form);
    if (c->family == FAMILY_GEMMA3) {
        const int64_t head_dim = build_shape(b, &attention->attention)->head_dim;
        attention->attention.q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS_ONE, head_dim);
        attention->attention.k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS_ONE, head_dim);
    }
    common_mlp(b, &mlp->mlp, 0);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS_ONE);
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

static json_t *cap_json(double cap)
{
    return cap > 0.0 ? json_real(cap) : json_null();
}

static json_t *write_attention_cap(const struct model_config *c)
{
    return cap_json(c->attention_cap);
}

json_t *gemma_write_logit_cap(const struct model_config *c)
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
enum status gemma_read_activation(struct config_reader *r, struct model_config *c)
{
    int gate = GATE_GELU_TANH, ignored;
    TRY(config_read_word(r, "hidden_act", common_gelu, &ignored));
    TRY(config_read_word(r, "hidden_activation", common_gelu, &gate));
    c->gate = (enum gate_kind)gate;
    return OK;
}

json_t *gemma_write_activation(const struct model_config *c)
{
    return json_string(c->gate == GATE_GELU_TANH ? "gelu_pytorch_tanh" : c->gate == GATE_GELU_ERF ? "gelu" : "silu");
}

/* Activations of Gemma 1, in which transformers computes every GELU by tanh. */
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

enum status gemma_derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->family == FAMILY_GEMMA ? 16 : 4;
    if (!c->head_dim)
        c->head_dim = 256;
    if (!c->max_positions)
        c->max_positions = c->family == FAMILY_GEMMA3 ? 131072 : 8192;
    return common_derive(r, c);
}

#define ALIKE                                                                                           \
    {"hidden_activation", KEY_SPECIAL, .read = gemma_read_activation, .write = gemma_write_activation}, \
        {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6}, {"tie_word_embeddings", KEY_FIELD, AT_tied, 1}, \
        {"attention_bias", KEY_FIELD, AT_attention_bias, 0},                                            \
        {"query_pre_attn_scalar", KEY_SPECIAL, .read = read_scale, .write = write_scale},               \
        {"attn_logit_softcapping", KEY_SPECIAL, .read = read_caps, .write = write_attention_cap},       \
        {"final_logit_softcapping", KEY_SPECIAL, .write = gemma_write_logit_cap}, WINDOW_KEY(read_windows), LISTED_TYPES_KEY

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
static const struct config_key gemma2_keys[] = {ALIKE, {NULL}};
static const struct config_key gemma3_keys[] = {
    ALIKE, {"rope_local_base_freq", KEY_SPECIAL, .read = read_local_theta, .write = write_local_theta}, {NULL}};

#define FAMILY                                                                                                              \
    .buffers = common_buffers, .check = common_check, .embedding = gemma_embedding, .derive = gemma_derive, .layer = layer, \
    .head = head
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
