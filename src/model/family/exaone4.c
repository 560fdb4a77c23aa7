/* EXAONE 4: norms after each block only, and of q and k of each head. If some layers have a window, those without one have no
 * positions. EXAONE with experts: norms before each block; experts are chosen by sigmoids with a bias, beside shared experts. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    build_layer_prefix(b, "model.layers.", l);
    attention->after = build_norm(b, "post_attention_layernorm", NORM_RMS);
    mlp->after = build_norm(b, "post_feedforward_layernorm", NORM_RMS);
    common_attention(b, a, 0, 0);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, build_shape(b, a)->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, build_shape(b, a)->head_dim);
    common_mlp(b, &mlp->mlp, 0);
}

static void experts_layer(struct builder *b, int l)
{
    llama_attention(b, l, &(struct llama_layer){0, 0, 0, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"});
    experts_mlp(b, l, "post_attention_layernorm");
}

/* ---- config.json ---- */

/* Reads the pattern of windows: a period, whose last layer has no window, or letters, which repeat layer_types. */
static enum status read_pattern(struct config_reader *r, const json_t *types, int64_t *period)
{
    const json_t *pattern = config_get(r, "sliding_window_pattern");
    if (json_is_string(pattern))
        return types ? OK : config_refuse(r, "sliding_window_pattern", "without layer_types only a number is supported");
    if (json_is_integer(pattern) && json_integer_value(pattern) == 0)
        return OK; /* 0: no window */
    return config_read_count(r, "sliding_window_pattern", OPTIONAL, 1, period);
}

static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    const json_t *window = json_object_get(r->object, "sliding_window"), *types = config_get(r, "layer_types");
    int64_t period = 4;
    TRY(read_pattern(r, types, &period));
    if (window && json_is_null(window))
        period = 0; /* no window, as in transformers */
    TRY(common_read_pattern(r, c, 4096, period));
    if (c->window == 0 && !(window && json_is_null(window)))
        return config_refuse(r, "layer_types",
                             "no layer has the sliding_window, and none has positions; without a window it is null");
    for (int64_t l = 0; c->window > 0 && l < min_i64(c->layers, LAYERS_MOST); l++)
        if (!model_bit(c->windowed, l))
            c->unrotated[l / 8] |= (uint8_t)(1 << l % 8);
    return OK;
}

/* Reads is_moe_layer, which repeats for each layer if it has experts. */
static enum status read_marked(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "is_moe_layer"), *mark;
    size_t l;
    if (list && (json_array_size(list) != (size_t)c->layers || c->layers > LAYERS_MOST))
        return config_refuse(r, "is_moe_layer", "must be a list with true or false for each of num_hidden_layers");
    json_array_foreach((json_t *)list, l, mark)
    {
        if (!json_is_boolean(mark) || json_is_true(mark) != experts_has(c, (int64_t)l))
            return config_refuse(r, "is_moe_layer", "first_k_dense_replace or mlp_layer_types says something else");
    }
    return OK;
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 32;
    if (!c->max_positions)
        c->max_positions = 2048;
    return common_derive(r, c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    WINDOW_KEY(read_windows),
    {"layer_types", KEY_SPECIAL, .write = config_list_layer_types},
    {"sliding_window_pattern", KEY_SPECIAL}, /* repeats layer_types */
    {NULL},
};

const struct family family_exaone4 = {.name = "exaone4",
                                      .class = "Exaone4ForCausalLM",
                                      .theta = 10000,
                                      .keys = {common_keys, keys},
                                      COMMON,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = common_head};

/* clang-format off */
static const struct config_key exaone_moe_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    WINDOW_KEY(read_windows),
    {"layer_types", KEY_SPECIAL, .write = config_list_layer_types},
    {"sliding_window_pattern", KEY_SPECIAL}, /* repeats layer_types */
    EXPERTS_KEY("num_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn},
    EXPERTS_SHARED("num_shared_experts"),
    EXPERTS_FIRST("first_k_dense_replace"),
    {"mlp_layer_types", KEY_SPECIAL, .write = experts_list_layers},
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1},
    {"n_group", KEY_FIELD, AT_expert_groups, 1},
    {"topk_group", KEY_FIELD, AT_groups_used, 1},
    {"routed_scaling_factor", KEY_FIELD, AT_router_scale, 2.5},
    {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},
    {"is_moe_layer", KEY_SPECIAL, .read = read_marked},
    {"first_last_k_dense_replace", KEY_ONLY_ONE},
    EXPERTS_CHOICE,
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    {NULL},
};
/* clang-format on */
static const struct experts_form form = {.router = ROUTER_SIGMOID,
                                         .gate = "mlp.gate",
                                         .bias = "mlp.e_score_correction_bias",
                                         EXPERTS_STACKS,
                                         .shared = "mlp.shared_experts",
                                         .count = {"num_experts"},
                                         .shared_key = "num_shared_experts",
                                         .shared_count = 1,
                                         .first_key = "first_k_dense_replace",
                                         .first_count = 1,
                                         .listed = 1};
LLAMA_FAMILY(exaone_moe, "exaone_moe", "ExaoneMoeForCausalLM", 10000, 2048, experts_layer, experts_derive, .all_heads = 1,
             .class_before = "ExaoneMoEForCausalLM", .experts = &form);
