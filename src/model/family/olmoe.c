/* OLMoE: Llama with experts, and norms of all queries and of all keys together. FlexOlmo has norms after blocks only. */
#include "model/family/experts.h"

static void norm_all_heads(struct builder *b, struct attention_block *a)
{
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS, a->q.out);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS, a->k.out);
    a->whole = 1;
}

static void layer(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    norm_all_heads(b, llama_attention(b, l, &(struct llama_layer){form, form, 0}));
    experts_mlp(b, l, "post_attention_layernorm");
}

static void layer_normed_after(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION);
    build_layer_prefix(b, "model.layers.", l);
    attention->after = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_attention(b, &attention->attention, form, form);
    norm_all_heads(b, &attention->attention);
    experts_mlp(b, l, NULL);
    b->m->layers[l].blocks[1].after = build_norm(b, "post_feedforward_layernorm", NORM_RMS);
}

static enum status read_clip(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "clip_qkv");
}

#define ALIKE(eps)                                                                                                      \
    LLAMA_KEYS_BUT(0, eps), {"attention_bias", KEY_FIELD, AT_attention_bias, 0}, EXPERTS_KEY("num_experts"),            \
        {"num_experts_per_tok", KEY_REQUIRED, AT_experts_used}, {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 0}, \
        EXPERTS_AUX

static const struct config_key olmoe_keys[] = {ALIKE(1e-5), {"clip_qkv", KEY_SPECIAL, .read = read_clip}, {NULL}};
static const struct config_key flex_olmo_keys[] = {ALIKE(1e-6), {NULL}};
static const struct experts_form form = {
    .router = ROUTER_SOFTMAX, .gate = "mlp.gate", EXPERTS_STACKS, .count = {"num_experts", "num_local_experts"}, .aux = 0.01};
LLAMA_FAMILY(olmoe, "olmoe", "OlmoeForCausalLM", 10000, 4096, layer, experts_derive, .all_heads = 1, .experts = &form);
LLAMA_FAMILY(flex_olmo, "flex_olmo", "FlexOlmoForCausalLM", 500000, 4096, layer_normed_after, experts_derive, .all_heads = 1,
             .experts = &form);
