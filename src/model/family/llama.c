/* Llama, and what its nearest relatives share. */
#include "model/family/llama.h"

static void build_head_norms(struct builder *b, struct attention_block *a, const struct llama_layer *as)
{
    if (as->q_norm) {
        a->q_norm = build_norm_of(b, as->q_norm, NORM_RMS, build_shape(b, a)->head_dim);
        a->k_norm = build_norm_of(b, as->k_norm, NORM_RMS, build_shape(b, a)->head_dim);
    }
    a->norm_last = as->norm_last;
}

void llama_build(struct builder *b, int l, const struct llama_layer *as)
{
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    struct attention_block *a = &attention->attention;
    build_layer_prefix(b, "model.layers.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_attention(b, a, as->qkv, as->o);
    build_head_norms(b, a, as);
    if (as->ungated)
        common_ungated_mlp(b, &mlp->mlp, as->mlp);
    else
        common_mlp(b, &mlp->mlp, as->mlp);
}

struct attention_block *llama_attention(struct builder *b, int l, const struct llama_layer *as)
{
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    build_layer_prefix(b, "model.layers.", l);
    block->norm = build_norm(b, "input_layernorm", NORM_RMS);
    common_attention(b, a, as->qkv, as->o);
    build_head_norms(b, a, as);
    return a;
}

void llama_layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias ? LINEAR_BIAS : 0;
    llama_build(b, l, &(struct llama_layer){attention, attention, mlp});
}

enum status llama_derive(struct config_reader *r, struct model_config *c)
{
    const struct family *f = r->family;
    if (!c->kv_heads && !f->all_heads)
        return config_missing(r, "num_key_value_heads");
    if (!json_object_get(r->object, "head_dim")) /* null: hidden_size / heads */
        c->head_dim = max_i64(c->head_dim, f->head_dim);
    if (!c->max_positions)
        c->max_positions = f->positions;
    return common_derive(r, c);
}

static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "sliding_window");
}

static const struct config_key llama_keys[] = {
    LLAMA_KEYS(0),
    LLAMA_BIASES,
    {"pretraining_tp", KEY_ONLY_ONE},
    {"use_sliding_window", KEY_ONLY_FALSE},
    {"sliding_window", KEY_SPECIAL, .read = read_no_window},
    {NULL},
};
LLAMA_FAMILY(llama, "llama", "LlamaForCausalLM", 10000, 2048, llama_layer, llama_derive, .all_heads = 1);
