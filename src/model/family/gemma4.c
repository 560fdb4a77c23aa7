/* Gemma 4 (text): norms before and after each block, of q and k of each head, and of v; they multiply by w. Layers without a window
 * have larger and fewer KV heads, whose keys may serve as values. Each layer's output is multiplied by a number. Experts (26B-A4B)
 * stand beside the MLP: each has a norm before and after it, and the sum one more; the router has a norm of its own. */
#include "model/family/experts.h"
#include "model/family/gemma.h"

#include <math.h>

/* Declares Gemma 4's attention; no map of values is declared if the map of keys makes the values. */
static void build_attention(struct builder *b, int l, struct attention_block *a, unsigned form)
{
    const struct model_config *c = &b->m->config;
    if (c->k_is_v && !model_bit(c->windowed, l))
        common_attention_of_keys(b, a, form);
    else
        common_attention(b, a, form, form);
    a->v_norm = build_bare_norm();
}

/* Declares the norms of experts and of the MLP, which is joined to them. */
static void build_expert_norms(struct builder *b, struct model_block *block, struct model_block *mlp)
{
    const struct model_norm of_router = {
        .kind = NORM_RMS, .weight = build_vector_of(b, "router.scale", b->m->config.dim, INIT_ONES), .bias = -1};
    mlp->parallel = mlp->joined = 1;
    mlp->inner = build_norm(b, "post_feedforward_layernorm_1", NORM_RMS);
    block->norm = build_norm(b, "pre_feedforward_layernorm_2", NORM_RMS);
    block->inner = build_norm(b, "post_feedforward_layernorm_2", NORM_RMS);
    block->after = mlp->after;
    experts_describe(b, &block->experts);
    block->experts.router_norm = of_router;
    block->experts.router_factor = (float)(1.0 / sqrt((double)b->m->config.dim));
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION),
                       *experts = c->experts > 0 ? build_block(b, l, BLOCK_EXPERTS) : NULL, *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "pre_feedforward_layernorm", NORM_RMS);
    attention->after = build_norm(b, "post_attention_layernorm", NORM_RMS);
    mlp->after = build_norm(b, "post_feedforward_layernorm", NORM_RMS);
    if (experts)
        build_expert_norms(b, experts, mlp);
    build_attention(b, l, a, form);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, build_shape(b, a)->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, build_shape(b, a)->head_dim);
    common_mlp(b, &mlp->mlp, 0);
    b->m->layers[l].scalar = build_constant(b, "layer_scalar");
}

static enum status read_cap(struct config_reader *r, struct model_config *c)
{
    c->logit_cap = 0.0;
    return config_read_real(r, "final_logit_softcapping", OPTIONAL, &c->logit_cap);
}

static json_t *write_nothing(const struct model_config *c)
{
    (void)c;
    return json_integer(0);
}

/* Reads Gemma 4's windows: every sixth layer and the last one have none. */
static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    TRY(common_read_pattern(r, c, 512, 6));
    if (c->layers >= 1 && c->layers <= LAYERS_MOST)
        c->windowed[(c->layers - 1) / 8] &= (uint8_t) ~(1 << (c->layers - 1) % 8);
    return OK;
}

/* Refuses embeddings for each layer, which E2B and E4B have in addition to a dense model. */
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

/* Reads the numbers of experts, which count only if layers have them. */
static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    int has = 0;
    TRY(config_read_bool(r, "enable_moe_block", &has));
    if (!has)
        return OK;
    TRY(config_read_count(r, "num_experts", OPTIONAL, 1, &c->experts));
    TRY(config_read_count(r, "top_k_experts", OPTIONAL, 1, &c->experts_used));
    TRY(config_read_count(r, "moe_intermediate_size", OPTIONAL, 1, &c->expert_ffn));
    c->router_normalises = 1;
    return c->experts == 0        ? config_missing(r, "num_experts")
           : c->experts_used == 0 ? config_missing(r, "top_k_experts")
           : c->expert_ffn == 0   ? config_missing(r, "moe_intermediate_size")
                                  : OK;
}

static json_t *write_has_experts(const struct model_config *c)
{
    return json_boolean(c->experts > 0);
}

static json_t *count_or_null(int64_t n)
{
    return n > 0 ? json_integer(n) : json_null();
}

static json_t *write_experts(const struct model_config *c)
{
    return count_or_null(c->experts);
}

static json_t *write_used(const struct model_config *c)
{
    return count_or_null(c->experts_used);
}

static json_t *write_expert_width(const struct model_config *c)
{
    return count_or_null(c->expert_ffn);
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

static enum status derive(struct config_reader *r, struct model_config *c)
{
    const json_t *ropes = json_object_get(r->object, "rope_parameters");
    if (json_is_object(ropes) && json_object_size(ropes) == 0)
        return config_refuse(r, "rope_parameters", "must say how layers with and without a window rotate");
    if (!json_is_object(ropes)) {
        c->rope = ROPE_PROPORTIONAL;
        c->rope_factor = 1.0;
        c->rope_share = 0.25;
        c->rope_local_theta = 10000.0;
    }
    c->attention_scale = 1.0;
    c->embedding_scale = sqrt((double)c->dim);
    TRY(gemma_derive(r, c));
    return read_global_heads(r, c);
}

/* Defaults of transformers' Gemma4TextConfig. */
static const struct config_implied gemma4_implied[] = {{AT_vocab, 262144}, {AT_dim, 2304}, {AT_ffn, 9216},
                                                       {AT_layers, 30},    {AT_heads, 8},  {NO_FIELD, 0}};

static const struct config_key gemma4_keys[] = {
    {"hidden_activation", KEY_SPECIAL, .read = gemma_read_activation, .write = gemma_write_activation},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 1},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"final_logit_softcapping", KEY_SPECIAL, .read = read_cap, .write = gemma_write_logit_cap},
    {"sliding_window", KEY_SPECIAL, .read = read_windows, .write = common_write_window},
    LISTED_TYPES_KEY,
    {"attention_k_eq_v", KEY_FIELD, AT_k_is_v, 0},
    {"global_head_dim", KEY_SPECIAL}, /* read once the heads of all layers are known */
    {"num_global_key_value_heads", KEY_SPECIAL},
    ROPE_BY_KIND_KEY,
    {"hidden_size_per_layer_input", KEY_SPECIAL, .read = read_per_layer_input, .write = write_nothing},
    {"num_kv_shared_layers", KEY_SPECIAL, .read = read_shared_layers},
    {"enable_moe_block", KEY_SPECIAL, .read = read_experts, .write = write_has_experts},
    {"vocab_size_per_layer_input", KEY_SPECIAL}, /* concern parts that the model does not have */
    {"use_double_wide_mlp", KEY_SPECIAL},
    {"num_experts", KEY_SPECIAL, .write = write_experts},
    {"top_k_experts", KEY_SPECIAL, .write = write_used},
    {"moe_intermediate_size", KEY_SPECIAL, .write = write_expert_width},
    {NULL}};

static const struct experts_form form = {.router = ROUTER_SOFTMAX,
                                         .gate = "router.proj",
                                         .factors = "router.per_expert_scale",
                                         .gate_up = "experts.gate_up_proj",
                                         .down = "experts.down_proj",
                                         .module = "experts"};

const struct family family_gemma4 = {.name = "gemma4_text",
                                     .class = "Gemma4ForCausalLM",
                                     .experts = &form,
                                     .keys = {common_keys, gemma4_keys},
                                     .theta = 1000000,
                                     .partial = 1,
                                     .implied = gemma4_implied,
                                     .buffers = common_buffers,
                                     .check = common_check,
                                     .embedding = gemma_embedding,
                                     .derive = derive,
                                     .layer = layer,
                                     .head = common_head};
