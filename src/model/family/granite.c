/* Granite: Llama with four factors. Granite SWA: three of four layers have a window, each head has a sink, and each layer has a
 * rotary base or none. HyperCLOVA X: the factors, and norms after blocks. Granite with experts: softmax weighs those chosen; in the
 * shared form an MLP stands beside them, and Granite SWA has both forms, too. */
#include "model/family/granite.h"

#include <stdio.h>

/* Declares a sink for each head; last of a layer, so that other parameters stay aligned, as in gpt-oss. */
static void build_sinks(struct builder *b, struct attention_block *a)
{
    a->sinks = build_vector(b, "self_attn.sinks", build_shape(b, a)->heads, b->m->config.init_std);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention_form = c->attention_bias ? LINEAR_BIAS : 0, mlp_form = c->mlp_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    if (c->post_norm) {
        attention->after = build_norm(b, "post_norm1", NORM_RMS);
        mlp->after = build_norm(b, "post_norm2", NORM_RMS);
    }
    common_attention(b, &attention->attention, attention_form, attention_form);
    common_mlp(b, &mlp->mlp, mlp_form);
    if (c->family == FAMILY_GRANITE_SWA)
        build_sinks(b, &attention->attention);
}

static void experts_layer(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    struct attention_block *a = llama_attention(b, l, &(struct llama_layer){form, form, 0});
    experts_mlp(b, l, "post_attention_layernorm");
    if (b->m->config.family == FAMILY_GRANITEMOE_SWA)
        build_sinks(b, a);
}

/* ---- config.json ---- */

/* Reads the factors. The logits' factor multiplies in HyperCLOVA X and divides in Granite; without the key HyperCLOVA X's scores
 * have the usual scale. */
enum status granite_read_factors(struct config_reader *r, struct model_config *c)
{
    const int divides = c->family != FAMILY_HYPERCLOVAX;
    double scaling = 1.0;
    c->attention_scale = divides ? 1.0 : 0.0;
    c->residual_scale = c->embedding_scale = 1.0;
    TRY(config_read_real(r, "embedding_multiplier", OPTIONAL, &c->embedding_scale));
    TRY(config_read_real(r, "residual_multiplier", OPTIONAL, &c->residual_scale));
    TRY(config_read_real(r, "attention_multiplier", OPTIONAL, &c->attention_scale));
    TRY(config_read_real(r, "logits_scaling", OPTIONAL, &scaling));
    c->logit_scale = divides ? 1.0 / scaling : scaling;
    return OK;
}

json_t *granite_write_embedding(const struct model_config *c)
{
    return json_real(c->embedding_scale);
}

json_t *granite_write_residual(const struct model_config *c)
{
    return json_real(c->residual_scale);
}

json_t *granite_write_attention(const struct model_config *c)
{
    return c->attention_scale > 0.0 ? json_real(c->attention_scale) : json_null();
}

json_t *granite_write_logits(const struct model_config *c)
{
    return json_real(c->family == FAMILY_HYPERCLOVAX ? c->logit_scale : 1.0 / c->logit_scale);
}

/* Reads windows; the first of every four layers has none. */
static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 128, -4);
}

/* Returns the base listed for layer l; -1 if the entry is no valid number. */
static double listed_theta(const json_t *list, int64_t l)
{
    const json_t *entry = json_array_get(list, (size_t)l);
    return json_is_number(entry) && json_number_value(entry) >= 0.0 ? json_number_value(entry) : -1.0;
}

/* Reads layer_rope_theta, which replaces rope_parameters' base: 0 for no positions, one base for all layers with a window, one
 * for the others. */
static enum status read_thetas(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "layer_rope_theta");
    double theta[2] = {0.0, 0.0}; /* [0]: layers without a window; [1]: layers with one */
    char instead[96];
    snprintf(instead, sizeof instead, "must be a list with a base, or 0, for each of num_hidden_layers");
    if (list && (json_array_size(list) != (size_t)c->layers || c->layers > LAYERS_MOST))
        return config_refuse(r, "layer_rope_theta", instead);
    for (int64_t l = 0; list && l < c->layers; l++) {
        const double listed = listed_theta(list, l);
        double *of_kind = &theta[c->window > 0 && model_bit(c->windowed, l)];
        if (listed < 0.0)
            return config_refuse(r, "layer_rope_theta", instead);
        if (listed == 0.0)
            c->unrotated[l / 8] |= (uint8_t)(1 << l % 8);
        else if (*of_kind > 0.0 && *of_kind != listed)
            return config_refuse(r, "layer_rope_theta", "supported: one base of layers that slide, and one of the others");
        else
            *of_kind = listed;
    }
    if (theta[0] > 0.0)
        c->rope_theta = theta[0];
    c->rope_local_theta = theta[1] != c->rope_theta ? theta[1] : 0.0;
    if (c->rope_local_theta > 0.0 && c->rope != ROPE_DEFAULT)
        return config_refuse(r, "layer_rope_theta", "several bases are not supported with a scaling of rotary positions");
    return OK;
}

enum status granite_derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads && c->family == FAMILY_GRANITE_SWA)
        return config_missing(r, "num_key_value_heads");
    if (!c->max_positions)
        c->max_positions = c->family == FAMILY_GRANITE_SWA ? 8192 : 2048;
    return common_derive(r, c);
}

static enum status derive_experts(struct config_reader *r, struct model_config *c)
{
    c->expert_ffn = c->ffn;
    return granite_derive(r, c);
}

enum status granite_read_shared(struct config_reader *r, struct model_config *c)
{
    c->shared_ffn = 0;
    return config_read_count(r, "shared_intermediate_size", OPTIONAL, 0, &c->shared_ffn);
}

#define WINDOWS                                                                           \
    WINDOW_KEY(read_windows), LISTED_TYPES_KEY,                                           \
    {                                                                                     \
        "layer_rope_theta", KEY_SPECIAL, .read = read_thetas, .write = config_list_thetas \
    }

static const struct config_key granite_keys[] = {GRANITE_KEYS(0, 1e-6), {NULL}};
/* clang-format off */
static const struct config_key granite_swa_keys[] = {
    GRANITE_KEYS(1, 1e-5),
    WINDOWS,
    {NULL},
};
/* clang-format on */
/* clang-format off */
static const struct config_key granitemoe_keys[] = {
    GRANITE_KEYS(0, 1e-6),
    EXPERTS_KEY("num_local_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    EXPERTS_AUX,
    {NULL},
};
static const struct config_key granitemoeshared_keys[] = {
    GRANITE_KEYS(0, 1e-6),
    EXPERTS_KEY("num_local_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"shared_intermediate_size", KEY_SPECIAL, .read = granite_read_shared, .write = experts_write_width},
    EXPERTS_AUX,
    {NULL},
};
/* clang-format on */
static const struct config_key granitemoe_swa_keys[] = {
    GRANITE_KEYS(0, 1e-6),
    WINDOWS,
    EXPERTS_KEY("num_local_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"shared_intermediate_size", KEY_SPECIAL, .read = granite_read_shared, .write = experts_write_width},
    EXPERTS_AUX,
    {NULL},
};
static const struct config_key hyperclovax_keys[] = {
    GRANITE_KEYS(0, 1e-6), {"use_post_norm", KEY_FIELD, AT_post_norm, 1}, {NULL}};

const struct experts_form granite_experts = {.router = ROUTER_TOP,
                                             .gate = "block_sparse_moe.router.layer",
                                             .router_module = "block_sparse_moe.router",
                                             .gate_up = "block_sparse_moe.input_linear.weight",
                                             .down = "block_sparse_moe.output_linear.weight",
                                             .module = "block_sparse_moe.experts",
                                             .shared = "shared_mlp",
                                             .shared_fused = 1,
                                             .count = {"num_local_experts"},
                                             .aux = 0.001};
/* Experts of Granite SWA, whose files have the names of transformers' modules. */
static const struct experts_form swa_experts = {.router = ROUTER_TOP,
                                                .gate = "block_sparse_moe.router",
                                                .gate_up = "block_sparse_moe.experts.gate_up_proj",
                                                .down = "block_sparse_moe.experts.down_proj",
                                                .module = "block_sparse_moe.experts",
                                                .shared = "shared_mlp",
                                                .shared_fused = 1,
                                                .count = {"num_local_experts"},
                                                .aux = 0.001};

#define FAMILY(variable, architecture, fill, build, ...)                             \
    const struct family family_##variable = {.name = #variable,                      \
                                             .class = architecture,                  \
                                             .theta = 10000,                         \
                                             .keys = {common_keys, variable##_keys}, \
                                             COMMON,                                 \
                                             .derive = fill,                         \
                                             .layer = build,                         \
                                             .head = common_head,                    \
                                             __VA_ARGS__}
FAMILY(granite, "GraniteForCausalLM", granite_derive, layer, .experts = NULL);
FAMILY(granite_swa, "GraniteSWAForCausalLM", granite_derive, layer, .experts = NULL);
FAMILY(hyperclovax, "HyperCLOVAXForCausalLM", granite_derive, layer, .experts = NULL);
FAMILY(granitemoe, "GraniteMoeForCausalLM", derive_experts, experts_layer, .experts = &granite_experts);
FAMILY(granitemoeshared, "GraniteMoeSharedForCausalLM", derive_experts, experts_layer, .experts = &granite_experts);
FAMILY(granitemoe_swa, "GraniteMoeSWAForCausalLM", derive_experts, experts_layer, .experts = &swa_experts);
