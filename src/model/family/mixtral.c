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

/* Reads the number of rotated elements of a head, which published files of MiniMax M2 have instead of a share. */
static enum status read_rotated(struct config_reader *r, struct model_config *c)
{
    int64_t rotated = 0;
    TRY(config_read_count(r, "rotary_dim", OPTIONAL, 1, &rotated));
    if (rotated > 0 && c->rope_share > 0.0)
        return config_refuse(r, "rotary_dim", "partial_rotary_factor says it, too: leave out one of them");
    if (rotated > c->head_dim)
        return config_refuse(r, "rotary_dim", "it is larger than head_dim");
    if (rotated > 0 && rotated < c->head_dim)
        c->rope_share = (double)rotated / (double)c->head_dim;
    return OK;
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

static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "sliding_window");
}

/* Refuses noise of the router's input, which transformers adds while it trains. */
static enum status read_jitter(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_number(r, "router_jitter_noise", 0.0);
}

#define ALIKE                                                                                 \
    EXPERTS_KEY("num_local_experts"), {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used}, \
        {"router_jitter_noise", KEY_SPECIAL, .read = read_jitter}, EXPERTS_AUX

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
    {"rotary_dim", KEY_SPECIAL, .read = read_rotated},
    SHARE_KEY,
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
    {"sliding_window", KEY_SPECIAL, .read = read_no_window},
    {"use_mtp", KEY_SPECIAL},
    EXPERTS_FURTHER("num_mtp_modules"),
    {"mtp_transformer_layers", KEY_SPECIAL},
    {NULL},
};

#define STACKS                                                                                                          \
    .gate = "block_sparse_moe.gate", .router_module = "mlp.gate", .gate_up = "block_sparse_moe.experts.gate_up_proj",   \
    .down = "block_sparse_moe.experts.down_proj", .gate_up_parts = experts_w13, .down_parts = experts_w2, .aux = 0.001, \
    .count = {"num_local_experts", "num_experts"}
static const struct experts_form form = {.router = ROUTER_SOFTMAX, STACKS};
static const struct experts_form minimax = {.router = ROUTER_SIGMOID, .bias = "block_sparse_moe.e_score_correction_bias", STACKS};
LLAMA_FAMILY(mixtral, "mixtral", "MixtralForCausalLM", 1000000, 131072, layer, derive, .all_heads = 1, .experts = &form);
LLAMA_FAMILY(minimax_m2, "minimax_m2", "MiniMaxM2ForCausalLM", 5000000, 196608, layer_minimax, derive, .head_dim = 128,
             .partial = 1, .experts = &minimax);
