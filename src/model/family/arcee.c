/* Arcee: Llama with an MLP of two maps, a squared ReLU between. */
#include "model/family/llama.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias ? LINEAR_BIAS : 0;
    llama_build(b, l, &(struct llama_layer){attention, attention, mlp, .ungated = 1});
}

static const struct config_key arcee_keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, RELU_SQUARED, common_ungated},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    LLAMA_BIASES,
    {NULL},
};
LLAMA_FAMILY(arcee, "arcee", "ArceeForCausalLM", 10000, 4096, layer, llama_derive, .all_heads = 1);
