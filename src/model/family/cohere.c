/* Cohere (Command R) and Cohere 2 (Command R7B, A). Attention and MLP read the same layer norm without bias. Rotary positions go
 * by pairs of neighbours, and logits have a factor.
 *
 * Command R+ has layer norms of each head of q and k, with weights of their own. In Cohere 2 only windowed layers have positions. */
#include "model/family/common.h"

static struct model_norm build_unbiased_norm(struct builder *b, const char *name)
{
    /* declares the weight, which a layer norm without bias has in the same form as an RMS norm */
    struct model_norm n = build_norm(b, name, NORM_RMS);
    n.kind = NORM_LAYER;
    return n;
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = mlp->norm = build_unbiased_norm(b, "input_layernorm");
    mlp->parallel = 1;
    common_attention(b, &attention->attention, form, form);
    if (c->qk_norm) {
        const struct attention_shape *s = build_shape(b, &attention->attention);
        attention->attention.q_norm = build_norm_of_heads(b, "self_attn.q_norm", s->heads, s->head_dim);
        attention->attention.k_norm = build_norm_of_heads(b, "self_attn.k_norm", s->kv_heads, s->head_dim);
    }
    common_mlp(b, &mlp->mlp, 0);
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_unbiased_norm(b, "model.norm");
}

/* ---- config.json ---- */

static enum status read_logit_scale(struct config_reader *r, struct model_config *c)
{
    c->logit_scale = 0.0625;
    return config_read_real(r, "logit_scale", OPTIONAL, &c->logit_scale);
}

static json_t *write_logit_scale(const struct model_config *c)
{
    return json_real(c->logit_scale);
}

static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    int64_t period = 4;
    TRY(config_read_count(r, "sliding_window_pattern", OPTIONAL, 1, &period));
    TRY(config_read_count(r, "_sliding_window_pattern", OPTIONAL, 1, &period));
    TRY(common_read_pattern(r, c, 4096, period));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++) /* layers without a window have no positions */
        if (!model_bit(c->windowed, l))
            c->unrotated[l / 8] |= (uint8_t)(1 << l % 8);
    return OK;
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->max_positions)
        c->max_positions = 8192;
    c->rope_interleaved = 1;
    return common_derive(r, c);
}

#define ALIKE                                                                                                    \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, {"layer_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5}, \
        {"tie_word_embeddings", KEY_FIELD, AT_tied, 1}, {"attention_bias", KEY_FIELD, AT_attention_bias, 0},     \
    {                                                                                                            \
        "logit_scale", KEY_SPECIAL, .read = read_logit_scale, .write = write_logit_scale                         \
    }

static const struct config_key cohere_keys[] = {ALIKE, {"use_qk_norm", KEY_FIELD, AT_qk_norm, 0}, {NULL}};
static const struct config_key cohere2_keys[] = {
    ALIKE,
    {"use_qk_norm", KEY_ONLY_FALSE},
    WINDOW_KEY(read_windows),
    LISTED_TYPES_KEY,
    {"rotary_pct", KEY_ONLY_ONE},
    {"position_embedding_type", KEY_WORD, NO_FIELD, .words = (const struct config_word[]){{"rope_gptj", 0}, {NULL, 0}}},
    {"use_embedding_sharing", KEY_ONLY_TRUE},
    {"use_gated_activation", KEY_ONLY_TRUE},
    {"use_parallel_block", KEY_ONLY_TRUE},
    {"use_parallel_embedding", KEY_SPECIAL},      /* the makers' way to divide the embedding among devices */
    {"order_of_interleaved_layers", KEY_SPECIAL}, /* two older spellings of layer_types */
    {"layer_switch", KEY_SPECIAL},
    {NULL},
};

const struct family family_cohere = {.name = "cohere",
                                     .class = "CohereForCausalLM",

                                     .theta = 500000,
                                     .keys = {common_keys, cohere_keys},
                                     COMMON,
                                     .derive = derive,
                                     .layer = layer,
                                     .head = head};
const struct family family_cohere2 = {.name = "cohere2",
                                      .class = "Cohere2ForCausalLM",

                                      .theta = 10000,
                                      .keys = {common_keys, cohere2_keys},
                                      COMMON,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = head};
