/* DeepSeek-V2 and V3, GLM-4.7-Flash, Kimi K2: latent attention, and experts beside shared ones behind some dense layers. V2's softmax
 * chooses and weighs, in the larger models from groups ranked by their greatest; the others' sigmoids are chosen from the best groups
 * with a bias. */
#include "model/family/latent.h"

#include <string.h>

static void layer(struct builder *b, int l)
{
    latent_attention(b, l);
    experts_mlp(b, l, "post_attention_layernorm");
}

/* ---- config.json ---- */

/* Reads groups, of which a greedy choice makes no use. */
static enum status read_groups(struct config_reader *r, struct model_config *c)
{
    const json_t *method = config_get(r, "topk_method");
    const char *word = !method ? "greedy" : json_is_string(method) ? json_string_value(method) : "";
    int64_t groups = 1, used = 1;
    const int limited = strcmp(word, "group_limited_greedy") == 0;
    if (!limited && strcmp(word, "greedy") != 0)
        return config_refuse(r, "topk_method", "supported: greedy, group_limited_greedy");
    TRY(config_read_count(r, "n_group", limited ? REQUIRED : OPTIONAL, 1, &groups));
    TRY(config_read_count(r, "topk_group", limited ? REQUIRED : OPTIONAL, 1, &used));
    c->expert_groups = limited ? groups : 1;
    c->groups_used = limited ? used : 1;
    return OK;
}

static json_t *write_method(const struct model_config *c)
{
    return json_string(c->expert_groups > 1 ? "group_limited_greedy" : "greedy");
}

static json_t *write_groups(const struct model_config *c)
{
    return json_integer(max_i64(c->expert_groups, 1));
}

static json_t *write_used(const struct model_config *c)
{
    return json_integer(max_i64(c->groups_used, 1));
}

static const struct config_word softmax[] = {{"softmax", 0}, {NULL, 0}};

#define ALIKE(normalises)                                                                                               \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, EXPERTS_KEY("n_routed_experts"),                         \
        {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used}, {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn}, \
        EXPERTS_SHARED("n_shared_experts"), EXPERTS_FIRST("first_k_dense_replace"), {"moe_layer_freq", KEY_ONLY_ONE},   \
        {"ep_size", KEY_ONLY_ONE}, {"aux_loss_alpha", KEY_SPECIAL}, /* transformers adds no such loss */                \
        {"seq_aux", KEY_SPECIAL}, {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},                           \
    {                                                                                                                   \
        "tie_word_embeddings", KEY_FIELD, AT_tied, 0                                                                    \
    }
#define SIGMOIDS                                                                            \
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1}, EXPERTS_GROUPS, EXPERTS_CHOICE, \
        {"rope_interleave", KEY_FIELD, AT_rope_interleaved, 1}, EXPERTS_FURTHER("num_nextn_predict_layers")

static const struct config_key deepseek_v3_keys[] = {
    ALIKE(1), SIGMOIDS, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6}, {"num_mtp_layers", KEY_SPECIAL}, {NULL}};
static const struct config_key kimi_k2_keys[] = {
    ALIKE(1), SIGMOIDS, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6}, {"num_mtp_layers", KEY_SPECIAL}, {NULL}};
static const struct config_key glm4_moe_lite_keys[] = {
    ALIKE(1),
    SIGMOIDS,
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"mlp_layer_types", KEY_SPECIAL, .write = experts_list_layers},
    SHARE_KEY,
    {NULL},
};
static const struct config_key deepseek_v2_keys[] = {
    ALIKE(0),
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"norm_topk_prob", KEY_ONLY_FALSE},
    {"routed_scaling_factor", KEY_FIELD, AT_router_scale, 1.0},
    {"topk_method", KEY_SPECIAL, .read = read_groups, .write = write_method},
    {"scoring_func", KEY_WORD, NO_FIELD, .words = softmax},
    {"n_group", KEY_SPECIAL, .write = write_groups},
    {"topk_group", KEY_SPECIAL, .write = write_used},
    {NULL},
};

/* Sets that V2 rotates neighbours. */
static enum status derive_v2(struct config_reader *r, struct model_config *c)
{
    c->rope_interleaved = 1;
    return experts_derive(r, c);
}

#define STACKS                                                                                                              \
    .gate = "mlp.gate", EXPERTS_STACKS, .shared = "mlp.shared_experts", .count = {"n_routed_experts", "num_local_experts"}, \
    .shared_key = "n_shared_experts", .first_key = "first_k_dense_replace"
#define CHOSEN .router = ROUTER_SIGMOID, .bias = "mlp.gate.e_score_correction_bias"
static const struct experts_form v2 = {STACKS, .router = ROUTER_SOFTMAX, .ranked = 1, .shared_count = 2};
static const struct experts_form v3 = {STACKS, CHOSEN, .shared_count = 1, .first_count = 3};
static const struct experts_form lite = {STACKS, CHOSEN, .shared_count = 1, .first_count = 1, .listed = 1};
LATENT_FAMILY(deepseek_v2, "deepseek_v2", "DeepseekV2ForCausalLM", 2048, layer, derive_v2, .experts = &v2);
LATENT_FAMILY(deepseek_v3, "deepseek_v3", "DeepseekV3ForCausalLM", 4096, layer, experts_derive, .experts = &v3);
LATENT_FAMILY(kimi_k2, "kimi_k2", "DeepseekV3ForCausalLM", 4096, layer, experts_derive, .experts = &v3);
LATENT_FAMILY(glm4_moe_lite, "glm4_moe_lite", "Glm4MoeLiteForCausalLM", 202752, layer, experts_derive, .partial = 1,
              .experts = &lite);
