/* Qwen2: Llama with biases of q, k and v. Qwen3: Llama with norms of q and k of each head. */
#include "model/family/llama.h"

static void layer_qwen2(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    llama_build(b, l, &(struct llama_layer){LINEAR_BIAS, c->attention_bias ? LINEAR_BIAS : 0, c->mlp_bias ? LINEAR_BIAS : 0});
}

static void layer_qwen3(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias ? LINEAR_BIAS : 0;
    llama_build(b, l,
                &(struct llama_layer){attention, attention, mlp, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"});
}

/* Reads the length up to which Qwen2.5-1M attends without chunks. vLLM attends in chunks beyond it; transformers and ltrain
 * attend all keys. */
static enum status read_dual_chunks(struct config_reader *r, struct model_config *c)
{
    const json_t *chunks = config_get(r, "dual_chunk_attention_config"),
                 *original = json_object_get(chunks, "original_max_position_embeddings");
    if (!chunks)
        return OK;
    if (!json_is_integer(original) || json_integer_value(original) < 1)
        return config_refuse(r, "dual_chunk_attention_config",
                             "original_max_position_embeddings must be a positive whole number");
    c->unchunked = (int64_t)json_integer_value(original);
    return OK;
}

static enum status derive_qwen3(struct config_reader *r, struct model_config *c)
{
    if (!c->head_dim)
        c->head_dim = 128;
    return llama_derive(r, c);
}

static const struct config_key qwen2_keys[] = {
    LLAMA_KEYS(0),
    USED_WINDOW_KEYS,
    {"dual_chunk_attention_config", KEY_SPECIAL, .read = read_dual_chunks},
    {NULL},
};
static const struct config_key qwen3_keys[] = {
    LLAMA_KEYS(0),    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    USED_WINDOW_KEYS, {"dual_chunk_attention_config", KEY_SPECIAL, .read = read_dual_chunks},
    {NULL},
};
LLAMA_FAMILY(qwen2, "qwen2", "Qwen2ForCausalLM", 10000, 32768, layer_qwen2, llama_derive, .all_heads = 0);
LLAMA_FAMILY(qwen3, "qwen3", "Qwen3ForCausalLM", 10000, 32768, layer_qwen3, derive_qwen3, .all_heads = 0);
