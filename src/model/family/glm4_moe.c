/* GLM-4.5, dots.llm1 and Solar Open: Llama with experts chosen by sigmoids with a bias, from the best groups, beside shared experts.
 * The first layers may be dense. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    const char *q = c->qk_norm ? "self_attn.q_norm" : NULL, *k = c->qk_norm ? "self_attn.k_norm" : NULL;
    llama_attention(b, l, &(struct llama_layer){form, c->family == FAMILY_DOTS1 ? form : 0, 0, .q_norm = q, .k_norm = k});
    experts_mlp(b, l, "post_attention_layernorm");
}

/* ---- config.json ---- */

static enum status derive_dots1(struct config_reader *r, struct model_config *c)
{
    c->qk_norm = 1;
    return experts_derive(r, c);
}

/* Refuses windows. Without layer_types and with sliding_window, the layers from max_window_layers on have one in transformers. */
static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    const json_t *window = json_object_get(r->object, "sliding_window");
    int64_t first = 62;
    TRY(experts_read_no_window(r, c));
    TRY(config_read_count(r, "max_window_layers", OPTIONAL, 0, &first));
    if (first < c->layers && !config_get(r, "layer_types") && !json_is_null(window))
        return config_refuse(r, "max_window_layers", "in this family only layers without a window are supported");
    return OK;
}

static json_t *write_null(const struct model_config *c)
{
    (void)c;
    return json_null();
}

#define ALIKE(normalises)                                                                           \
    EXPERTS_KEY("n_routed_experts"), {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},        \
        {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn}, EXPERTS_SHARED("n_shared_experts"), \
        {"norm_topk_prob", KEY_FIELD, AT_router_normalises, normalises}, EXPERTS_GROUPS,            \
        {"attention_bias", KEY_FIELD, AT_attention_bias, 0},                                        \
    {                                                                                               \
        "output_router_logits", KEY_FIELD, AT_router_aux_used, 0                                    \
    }

static const struct config_key glm4_moe_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    ALIKE(1),
    EXPERTS_FIRST("first_k_dense_replace"),
    {"use_qk_norm", KEY_FIELD, AT_qk_norm, 0},
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    SHARE_KEY,
    {NULL},
};
static const struct config_key solar_open_keys[] = {LLAMA_KEYS_BUT(0, 1e-5), ALIKE(1), SHARE_KEY, {NULL}};
static const struct config_key dots1_keys[] = {
    LLAMA_KEYS(0),
    ALIKE(0),
    EXPERTS_FIRST("first_k_dense_replace"),
    {"moe_layer_freq", KEY_ONLY_ONE},
    EXPERTS_CHOICE,
    {"sliding_window", KEY_SPECIAL, .read = read_no_window, .write = write_null},
    {"max_window_layers", KEY_SPECIAL}, /* no effect if sliding_window is null */
    {"layer_types", KEY_SPECIAL},
    {"use_sliding_window", KEY_SPECIAL},
    {NULL},
};

#define STACKS                                                                                                \
    .router = ROUTER_SIGMOID, .gate = "mlp.gate", .bias = "mlp.gate.e_score_correction_bias", EXPERTS_STACKS, \
    .shared = "mlp.shared_experts", .count = {"n_routed_experts", "num_local_experts"}, .shared_key = "n_shared_experts"
static const struct experts_form glm = {STACKS, .first_key = "first_k_dense_replace", .first_count = 1, .shared_count = 1};
static const struct experts_form solar = {STACKS, .shared_count = 1};
static const struct experts_form dots = {STACKS, .first_key = "first_k_dense_replace"};
LLAMA_FAMILY(glm4_moe, "glm4_moe", "Glm4MoeForCausalLM", 10000, 131072, layer, experts_derive, .partial = 1, .share = 0.5,
             .experts = &glm);
LLAMA_FAMILY(solar_open, "solar_open", "SolarOpenForCausalLM", 1000000, 131072, layer, experts_derive, .head_dim = 128,
             .partial = 1, .optional_ffn = 1, .experts = &solar);
LLAMA_FAMILY(dots1, "dots1", "Dots1ForCausalLM", 10000, 2048, layer, derive_dots1, .all_heads = 1, .experts = &dots);
