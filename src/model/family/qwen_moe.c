/* Qwen2 and Qwen3 with experts: weights of experts are normalised if config.json says so, and some layers may be dense. Qwen2's
 * shared experts are multiplied by a sigmoid. Qwen3's may read and give narrower rows (moe_latent_size, as of Nemotron-H), which
 * transformers does not know. Mellum 2 is Qwen3's with a window in some layers, which have a rotary base of their own. */
#include "model/family/experts.h"

static void layer_qwen2(struct builder *b, int l)
{
    llama_attention(b, l, &(struct llama_layer){b->m->config.attention_bias ? LINEAR_BIAS : 0, 0, 0});
    experts_mlp(b, l, "post_attention_layernorm");
}

static void layer_qwen3(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    llama_attention(b, l, &(struct llama_layer){form, form, 0, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"});
    experts_mlp(b, l, "post_attention_layernorm");
}

static enum status read_shared(struct config_reader *r, struct model_config *c)
{
    c->shared_ffn = 5632;
    return config_read_count(r, "shared_expert_intermediate_size", OPTIONAL, 1, &c->shared_ffn);
}

/* Reads windows; without layer_types no layer has one. */
static enum status read_windows(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 1024, 1);
}

/* Sets the bases of a file without rope_parameters, and refuses older keys of them, which transformers ignores in this family. */
static enum status derive_mellum(struct config_reader *r, struct model_config *c)
{
    static const char *const older[] = {"rope_theta", "rope_scaling"};
    const json_t *ropes = json_object_get(r->object, "rope_parameters");
    if (json_is_object(ropes) && json_object_size(ropes) == 0)
        return config_refuse(r, "rope_parameters", "must say how layers with and without a window rotate");
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (!json_is_object(ropes) && json_object_get(r->object, older[i]))
            return config_refuse(r, older[i], "in this family transformers reads rope_parameters alone");
    if (c->window == 0)
        c->rope_local_theta = 0.0;
    else if (!json_is_object(ropes))
        c->rope_local_theta = 10000.0;
    return experts_derive(r, c);
}

#define ALIKE                                                                                                           \
    EXPERTS_KEY("num_experts"), {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},                                 \
        {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn}, {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 0}, \
        {"decoder_sparse_step", KEY_SPECIAL, .read = experts_read_step, .write = experts_write_one},                    \
        {"mlp_only_layers", KEY_SPECIAL, .write = experts_list_dense}, EXPERTS_NO_WINDOW, EXPERTS_AUX

static const struct config_key qwen2_moe_keys[] = {
    LLAMA_KEYS(0), {"qkv_bias", KEY_FIELD, AT_attention_bias, 1},
    ALIKE,         {"shared_expert_intermediate_size", KEY_SPECIAL, .read = read_shared, .write = experts_write_width},
    {NULL},
};
static const struct config_key qwen3_moe_keys[] = {
    LLAMA_KEYS(0),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    ALIKE,
    {"use_qk_norm", KEY_ONLY_TRUE},
    {"moe_latent_size", KEY_OWN, AT_expert_dim},
    {NULL},
};

/* clang-format off */
static const struct config_key mellum_keys[] = {
    LLAMA_KEYS(0),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    WINDOW_KEY(read_windows),
    LISTED_TYPES_KEY,
    ROPE_BY_KIND_KEY,
    EXPERTS_KEY("num_local_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn},
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1},
    {"mlp_layer_types", KEY_SPECIAL, .read = experts_read_layers, .write = experts_list_layers},
    EXPERTS_AUX,
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    {"mtp_layer_types", KEY_SPECIAL}, /* concern layers that are no part of the model */
    {"mtp_mlp_layer_types", KEY_SPECIAL},
    {NULL},
};
/* clang-format on */

static const struct experts_form form2 = {.router = ROUTER_SOFTMAX,
                                          .gate = "mlp.gate",
                                          EXPERTS_STACKS,
                                          .shared = "mlp.shared_expert",
                                          .shared_map = "mlp.shared_expert_gate",
                                          .count = {"num_experts"},
                                          .aux = 0.001};
static const struct experts_form form3 = {.router = ROUTER_SOFTMAX,
                                          .gate = "mlp.gate",
                                          EXPERTS_STACKS,
                                          .descend = "mlp.fc1_latent_proj",
                                          .ascend = "mlp.fc2_latent_proj",
                                          .count = {"num_experts", "num_local_experts"},
                                          .aux = 0.001};
static const struct experts_form form_mellum = {.router = ROUTER_SOFTMAX,
                                                .gate = "mlp.gate",
                                                EXPERTS_STACKS,
                                                .count = {"num_local_experts", "num_experts"},
                                                .listed = 1,
                                                .aux = 0.001};
LLAMA_FAMILY(qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM", 10000, 32768, layer_qwen2, experts_derive, .all_heads = 1,
             .experts = &form2);
LLAMA_FAMILY(qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM", 10000, 32768, layer_qwen3, experts_derive, .experts = &form3);
LLAMA_FAMILY(mellum, "mellum", "MellumForCausalLM", 500000, 131072, layer_qwen3, derive_mellum, .head_dim = 128,
             .experts = &form_mellum);
