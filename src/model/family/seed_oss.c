/* Seed-OSS: Llama with biases of q, k and v alone. */
#include "model/family/llama.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    llama_build(b, l, &(struct llama_layer){c->attention_bias ? LINEAR_BIAS : 0, 0, c->mlp_bias ? LINEAR_BIAS : 0});
}

static const struct config_key seed_oss_keys[] = {
    LLAMA_KEYS(0),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attention_out_bias", KEY_ONLY_FALSE},
    {"residual_dropout", KEY_DROPOUT},
    {NULL},
};
LLAMA_FAMILY(seed_oss, "seed_oss", "SeedOssForCausalLM", 10000, 524288, layer, llama_derive, .head_dim = 128);
