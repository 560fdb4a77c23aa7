/* Mixtral: Mistral with experts, whose weights are normalised. MiniMax M2: experts chosen by sigmoids with a bias, norms of all
 * queries and of all keys together, and a part of each head is rotated. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    llama_attention(b, l, &(struct llama_layer){0, 0, 0});
    experts_mlp(b, l, "post_attention_layernorm");
}

static void layer_minimax(struct builder *b, int l)
{
    struct attention_block *a = llama_attention(b, l, &(struct llama_layer){0, 0, 0});
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, a->q.out);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, a->k.out);
    a->whole = 1;
    experts_mlp(b, l, "post_attention_layernorm");
}

/* ---- config.json ---- */

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->router_normalises = 1;
    return experts_derive(r, c);
}

static enum status read_window(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 0, 0);
}

/* Refuses layers without attention to all tokens, whose number is not 1. */
static enum status read_types(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "attn_type_list"), *type;
    size_t l;
    (void)c;
    json_array_foreach((json_t *)list, l, type)
    {
        if (!json_is_integer(type) || json_integer_value(type) != 1)
            return config_refuse(r, "attn_type_list", "only 1, attention to all tokens, is supported");
    }
    return OK;
}

#define ALIKE \
    EXPERTS_KEY("num_local_experts"), {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used}, EXPERTS_NO_JITTER, EXPERTS_AUX

static const struct config_key mixtral_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    ALIKE,
    WINDOW_KEY(read_window),
    {NULL},
};
static const struct config_word per_layer[] = {{"per_layer", 0}, {NULL, 0}};
static const struct config_key minimax_m2_keys[] = {
    LLAMA_KEYS(0),
    ALIKE,
    EXPERTS_ROTATED,
    {"scoring_func", KEY_WORD, NO_FIELD, .words = experts_sigmoid},
    {"use_qk_norm", KEY_ONLY_TRUE},
    {"qk_norm_type", KEY_WORD, NO_FIELD, .words = per_layer},
    {"use_routing_bias", KEY_ONLY_TRUE},
    {"attn_type_list", KEY_SPECIAL, .read = read_types},
    {"layernorm_full_attention_beta", KEY_SPECIAL}, /* this and the next four keys concern other models of the makers */
    {"layernorm_linear_attention_beta", KEY_SPECIAL},
    {"layernorm_mlp_beta", KEY_SPECIAL},
    {"mlp_intermediate_size", KEY_SPECIAL},
    {"shared_moe_mode", KEY_SPECIAL},
    EXPERTS_NULL_WINDOW,
    {"use_mtp", KEY_SPECIAL},
    EXPERTS_FURTHER("num_mtp_modules"),
    {"mtp_transformer_layers", KEY_SPECIAL},
    {NULL},
};

static const struct experts_form form = {.router = ROUTER_SOFTMAX, EXPERTS_SPARSE_STACKS};
static const struct experts_form minimax = {
    .router = ROUTER_SIGMOID, .bias = "block_sparse_moe.e_score_correction_bias", EXPERTS_SPARSE_STACKS};
LLAMA_FAMILY(mixtral, "mixtral", "MixtralForCausalLM", 1000000, 131072, layer, derive, .all_heads = 1, .experts = &form);
LLAMA_FAMILY(minimax_m2, "minimax_m2", "MiniMaxM2ForCausalLM", 5000000, 196608, layer_minimax, derive, .head_dim = 128,
             .partial = 1, .experts = &minimax);
