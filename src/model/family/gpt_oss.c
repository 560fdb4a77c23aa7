/* gpt-oss, without experts: attention sinks, windows in every second layer, biases, a clamped gate. */
#include "model/family/common.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_attention(b, &attention->attention, form, form);
    common_mlp(b, &mlp->mlp, LINEAR_BIAS);
    /* declared last: biases behind a few sinks would begin at addresses unfit for vector loads */
    attention->attention.sinks = build_vector(b, "self_attn.sinks", build_shape(b, &attention->attention)->heads, c->init_std);
}

/* ---- config.json ---- */

static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    int64_t experts = 128;
    c->gate = GATE_CLAMPED;
    TRY(config_read_count(r, "num_local_experts", OPTIONAL, 0, &experts));
    if (experts > 0)
        return config_refuse(
            r, "num_local_experts",
            "gpt-oss' experts are not supported yet, only its attention in a model whose MLPs are dense (0 experts)");
    return OK;
}

static json_t *write_experts(const struct model_config *c)
{
    (void)c;
    return json_integer(0);
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
    {"num_local_experts", KEY_SPECIAL, .read = read_experts, .write = write_experts},
    {"hidden_act", KEY_WORD, NO_FIELD, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"swiglu_limit", KEY_FIELD, AT_gate_limit, 7.0},
    {"swiglu_alpha", KEY_FIELD, AT_gate_alpha, 1.702},
    WINDOW_KEY(read_windows),
    LISTED_TYPES_KEY,
    {"initial_context_length", KEY_SPECIAL}, /* repeats rope_scaling */
    {"num_experts_per_tok", KEY_SPECIAL},    /* this and the next: experts, of which there are none */
    {"experts_per_token", KEY_SPECIAL},
    {"router_aux_loss_coef", KEY_SPECIAL},
    {"output_router_logits", KEY_SPECIAL},
    {NULL},
};

const struct family family_gpt_oss = {.name = "gpt_oss",
                                      .class = "GptOssForCausalLM",
                                      .theta = 150000,
                                      .keys = {common_keys, gpt_oss_keys},
                                      COMMON,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = common_head};
