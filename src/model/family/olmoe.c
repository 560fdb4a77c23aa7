/* OLMoE: Llama with experts, and norms of all queries and of all keys together. */
#include "model/family/experts.h"

static void layer(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    struct attention_block *a = llama_attention(b, l, &(struct llama_layer){form, form, 0});
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, a->q.out);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, a->k.out);
    a->whole = 1;
    experts_mlp(b, l, "post_attention_layernorm");
}

static enum status read_clip(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "clip_qkv");
}

static const struct config_key olmoe_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"clip_qkv", KEY_SPECIAL, .read = read_clip},
    EXPERTS_KEY("num_experts"),
    {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used},
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 0},
    EXPERTS_AUX,
    {NULL},
};
static const struct experts_form form = {
    .router = ROUTER_SOFTMAX, .gate = "mlp.gate", EXPERTS_STACKS, .count = {"num_experts", "num_local_experts"}, .aux = 0.01};
LLAMA_FAMILY(olmoe, "olmoe", "OlmoeForCausalLM", 10000, 4096, layer, experts_derive, .all_heads = 1, .experts = &form);
