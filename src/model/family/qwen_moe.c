/* Qwen2 and Qwen3 with experts: weights of experts are normalised if config.json says so, and some layers may be dense. Qwen2's
 * shared experts are multiplied by a sigmoid. Qwen3's may read and give narrower rows (moe_latent_size, as of Nemotron-H), which
 * transformers does not know. */
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
LLAMA_FAMILY(qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM", 10000, 32768, layer_qwen2, experts_derive, .all_heads = 1,
             .experts = &form2);
LLAMA_FAMILY(qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM", 10000, 32768, layer_qwen3, experts_derive, .experts = &form3);
