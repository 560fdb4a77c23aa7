/* ERNIE 4.5: Llama with one key for all biases, rotating neighbouring pairs. */
#include "model/family/llama.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias || c->attention_bias ? LINEAR_BIAS : 0;
    llama_build(b, l, &(struct llama_layer){attention, attention, mlp});
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->rope_interleaved = 1;
    return llama_derive(r, c);
}

static const struct config_key ernie4_5_keys[] = {
    LLAMA_KEYS_BUT(1, 1e-5),
    {"use_bias", KEY_FIELD, AT_attention_bias, 0},
    {NULL},
};
LLAMA_FAMILY(ernie4_5, "ernie4_5", "Ernie4_5ForCausalLM", 500000, 131072, layer, derive, .class_before = "Ernie4_5_ForCausalLM",
             .head_dim = 128);
