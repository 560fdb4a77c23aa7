/* gpt-oss: attention sinks, windows in every second layer, biases, a clamped gate. Softmax weighs the experts that are chosen; their
 * matrices are stored by inputs, and the columns of gate and up alternate. Without experts, MLPs are dense. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned biases = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION);
    struct model_block *mlp = c->experts > 0 ? NULL : build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    if (mlp)
        mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_attention(b, &attention->attention, biases, biases);
    if (mlp)
        common_mlp(b, &mlp->mlp, LINEAR_BIAS);
    else
        experts_mlp(b, l, "post_attention_layernorm");
    /* declared last: biases behind a few sinks would begin at addresses unfit for vector loads */
    attention->attention.sinks = build_vector(b, "self_attn.sinks", build_shape(b, &attention->attention)->heads, c->init_std);
}

/* ---- config.json ---- */

static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    int64_t other = 0;
    c->gate = GATE_CLAMPED;
    c->experts = 128;
    c->experts_used = 4;
    TRY(config_read_count(r, "num_local_experts", OPTIONAL, 0, &c->experts));
    TRY(config_read_count(r, "num_experts_per_tok", OPTIONAL, 0, &c->experts_used));
    TRY(config_read_count(r, "experts_per_token", OPTIONAL, 0, &other));
    if (c->experts == 0)
        c->experts_used = 0;
    if (c->experts > 0 && other > 0 && other != c->experts_used)
        return config_refuse(r, "experts_per_token", "num_experts_per_tok says something else");
    c->expert_ffn = c->experts > 0 ? c->ffn : 0;
    return OK;
}

static json_t *write_used(const struct model_config *c)
{
    return json_integer(c->experts > 0 ? c->experts_used : 4);
}

/* Reads windows: 128 without the key, none if null. Every second layer has the window, beginning with the first. */
static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 128, 2);
}

/* Derives rotary positions; if keys are missing, the published models' values are used, as in transformers. */
static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (json_object_size(config_get(r, "rope_scaling")) == 0 && !config_get(r, "rope_parameters")) {
        c->rope = ROPE_YARN;
        c->rope_factor = 32.0;
        c->rope_fast = 32.0;
        c->rope_slow = 1.0;
        c->rope_exact = 1;
        c->rope_original_positions = 4096.0;
    }
    if (!c->kv_heads)
        c->kv_heads = 8;
    if (!c->head_dim)
        c->head_dim = 64;
    if (!c->max_positions)
        c->max_positions = 131072;
    return common_derive(r, c);
}

static const struct config_key gpt_oss_keys[] = {
    {"num_local_experts", KEY_SPECIAL, .read = read_experts, .write = experts_write_count},
    {"hidden_act", KEY_WORD, NO_FIELD, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"swiglu_limit", KEY_FIELD, AT_gate_limit, 7.0},
    {"swiglu_alpha", KEY_FIELD, AT_gate_alpha, 1.702},
    WINDOW_KEY(read_windows),
    LISTED_TYPES_KEY,
    {"initial_context_length", KEY_SPECIAL}, /* repeats rope_scaling */
    {"num_experts_per_tok", KEY_SPECIAL, .write = write_used},
    {"experts_per_token", KEY_SPECIAL},
    EXPERTS_AUX,
    {NULL},
};

static const struct experts_form form = {.router = ROUTER_TOP,
                                         .gate = "mlp.router",
                                         .biased = 1,
                                         .gate_up = "mlp.experts.gate_up_proj",
                                         .down = "mlp.experts.down_proj",
                                         .form = LINEAR_IN_OUT | LINEAR_BIAS,
                                         .alternate = 1,
                                         .aux = 0.001};

const struct family family_gpt_oss = {.name = "gpt_oss",
                                      .class = "GptOssForCausalLM",
                                      .theta = 150000,
                                      .experts = &form,
                                      .keys = {common_keys, gpt_oss_keys},
                                      COMMON,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = common_head};
