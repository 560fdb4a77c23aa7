/* HunYuan 3: Llama with norms of q and k of each head, and experts chosen by sigmoids with a bias, beside a shared one. The first
 * layer is dense. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    llama_attention(b, l, &(struct llama_layer){form, form, 0, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"});
    experts_mlp(b, l, "post_attention_layernorm");
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->router_normalises = 1;
    return experts_derive(r, c);
}

/* enable_moe_fp32_combine: the type in which experts and shared experts are added; here it is always fp32. */
static const struct config_key hy_v3_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_ONLY_FALSE},
    EXPERTS_KEY("num_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"moe_intermediate_size", KEY_REQUIRED, AT_expert_ffn},
    EXPERTS_SHARED("num_shared_experts"),
    {"mlp_layer_types", KEY_SPECIAL, .read = experts_read_layers, .write = experts_list_layers},
    {"router_scaling_factor", KEY_FIELD, AT_router_scale, 2.826},
    {"enable_moe_fp32_combine", KEY_SPECIAL},
    {"enable_attention_fp32_softmax", KEY_SPECIAL},
    {"enable_lm_head_fp32", KEY_SPECIAL},
    {"expert_hidden_dim", KEY_SPECIAL}, /* repeats moe_intermediate_size */
    {"first_k_dense_replace", KEY_ONLY_ONE},
    {"moe_router_use_sigmoid", KEY_ONLY_TRUE},
    {"moe_router_enable_expert_bias", KEY_ONLY_TRUE},
    {"route_norm", KEY_ONLY_TRUE},
    {"qk_norm", KEY_ONLY_TRUE},
    {"use_grouped_mm", KEY_SPECIAL},
    EXPERTS_FURTHER("num_nextn_predict_layers"),
    {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},
    {NULL},
};
static const struct experts_form form = {.router = ROUTER_SIGMOID,
                                         .gate = "mlp.router.gate",
                                         .router_module = "mlp.gate",
                                         .bias = "mlp.expert_bias",
                                         EXPERTS_STACKS,
                                         .shared = "mlp.shared_experts",
                                         .count = {"num_experts", "num_local_experts"},
                                         .shared_key = "num_shared_experts",
                                         .shared_count = 1,
                                         .first_count = 1,
                                         .listed = 1};
/* Files call the shared MLP by another name than transformers' module, which adapters bear. */
static const struct param_renaming renamings[] = {{"mlp.shared_experts.", "mlp.shared_mlp."}, {NULL, NULL}};
LLAMA_FAMILY(hy_v3, "hy_v3", "HYV3ForCausalLM", 11158840, 131072, layer, derive, .head_dim = 128, .experts = &form,
             .renamings = renamings);
