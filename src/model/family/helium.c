/* Helium: Llama without a bias of the output map, rotating neighbouring pairs. */
#include "model/family/llama.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    llama_build(b, l, &(struct llama_layer){c->attention_bias ? LINEAR_BIAS : 0, 0, c->mlp_bias ? LINEAR_BIAS : 0});
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    c->rope_interleaved = 1;
    if (!json_object_get(r->object, "head_dim"))
        c->head_dim = 128;
    if (c->kv_heads && c->head_dim * c->heads != c->dim)
        return config_refuse(r, "head_dim", "must be hidden_size / num_attention_heads");
    return llama_derive(r, c);
}

static const struct config_key helium_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-8),
    LLAMA_BIASES,
    {NULL},
};
LLAMA_FAMILY(helium, "helium", "HeliumForCausalLM", 100000, 4096, layer, derive, .all_heads = 0);
