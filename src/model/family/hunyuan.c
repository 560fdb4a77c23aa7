/* HunYuan: Llama with norms of q and k of each head, after rotation. With experts: their weights are normalised, and an MLP as wide
 * as an expert stands beside them. */
#include "model/family/experts.h"

#include <stdio.h>

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias ? LINEAR_BIAS : 0;
    llama_build(b, l,
                &(struct llama_layer){attention, attention, mlp, .q_norm = "self_attn.query_layernorm",
                                      .k_norm = "self_attn.key_layernorm", .norm_last = 1});
}

static const struct config_word hunyuan_norms[] = {{"rms", 0}, {"hf_rms", 0}, {NULL, 0}};

/* Keys of both; attention_head_dim repeats head_dim, and the keys after it concern images or features that are off. */
#define ALIKE                                                                                                                   \
    LLAMA_KEYS_BUT(0, 1e-5), {"attention_bias", KEY_FIELD, AT_attention_bias, 0}, {"mlp_bias", KEY_ONLY_FALSE},                 \
        {"use_qk_norm", KEY_ONLY_TRUE}, {"use_rotary_pos_emb", KEY_ONLY_TRUE}, {"position_embedding_xdrope", KEY_ONLY_FALSE},   \
        {"use_cla", KEY_ONLY_FALSE}, {"norm_type", KEY_WORD, NO_FIELD, .words = hunyuan_norms},                                 \
        {"attention_head_dim", KEY_SPECIAL}, {"cla_share_factor", KEY_SPECIAL}, {"add_classification_head", KEY_ONLY_FALSE},    \
        {"class_num", KEY_SPECIAL}, {"dense_list", KEY_SPECIAL}, {"pool_type", KEY_SPECIAL},                                    \
        {"group_limited_greedy", KEY_SPECIAL}, {"routed_scaling_factor", KEY_SPECIAL}, {"num_media_embeds", KEY_SPECIAL},       \
        {"org_vocab_size", KEY_SPECIAL}, {"eod_token_id", KEY_SPECIAL}, {"pad_id", KEY_SPECIAL}, {"mask_init_id", KEY_SPECIAL}, \
        {"im_start_id", KEY_SPECIAL}, {"im_end_id", KEY_SPECIAL}, {"im_newline_id", KEY_SPECIAL},                               \
        {"text_start_id", KEY_SPECIAL}, {"text_end_id", KEY_SPECIAL}, {"video_start_id", KEY_SPECIAL},                          \
    {                                                                                                                           \
        "video_end_id", KEY_SPECIAL                                                                                             \
    }

static const struct config_key hunyuan_keys[] = {
    ALIKE,
    {"use_mixed_mlp_moe", KEY_ONLY_FALSE},
    {"num_experts", KEY_ONLY_ONE},
    {NULL},
};
LLAMA_FAMILY(hunyuan, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", 10000, 2048, layer, llama_derive, .all_heads = 1);

/* ---- with experts ---- */

static void experts_layer(struct builder *b, int l)
{
    const unsigned form = b->m->config.attention_bias ? LINEAR_BIAS : 0;
    llama_attention(b, l,
                    &(struct llama_layer){form, form, 0, .q_norm = "self_attn.query_layernorm",
                                          .k_norm = "self_attn.key_layernorm", .norm_last = 1});
    experts_mlp(b, l, "post_attention_layernorm");
}

static enum status derive_experts(struct config_reader *r, struct model_config *c)
{
    c->router_normalises = 1;
    c->shared_ffn = c->ffn;
    return experts_derive(r, c);
}

/* Reads a number that all layers have in common, or a list of equal numbers. absent: the number if the key is missing. */
static enum status read_alike(struct config_reader *r, const char *key, int64_t absent, int64_t *out)
{
    const json_t *v = config_get(r, key), *first = json_is_array(v) ? json_array_get(v, 0) : v, *number;
    size_t i;
    *out = v ? (int64_t)json_integer_value(first) : absent;
    json_array_foreach((json_t *)v, i, number)
    {
        if (!json_equal(number, first))
            return config_refuse(r, key, "only layers with equal numbers are supported");
    }
    return !v || (json_is_integer(first) && *out > 0) ? OK : config_refuse(r, key, "must be a positive whole number");
}

/* Reads the keys of experts that transformers reads, and refuses published files whose other keys contradict them. */
static enum status read_experts(struct config_reader *r, struct model_config *c)
{
    char instead[80];
    int64_t width, shared;
    TRY(read_alike(r, "num_experts", 1, &c->experts));
    TRY(read_alike(r, "moe_topk", 1, &c->experts_used));
    TRY(read_alike(r, "moe_intermediate_size", c->ffn, &width));
    TRY(read_alike(r, "num_shared_expert", 1, &shared));
    snprintf(instead, sizeof instead, "only intermediate_size, %lld, is supported", (long long)c->ffn);
    if (width != c->ffn)
        return config_refuse(r, "moe_intermediate_size", instead);
    return shared == 1 ? OK : config_refuse(r, "num_shared_expert", "only 1 is supported");
}

static enum status read_skipped(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_number(r, "moe_layer_num_skipped", 0.0);
}

static json_t *write_used(const struct model_config *c)
{
    return json_integer(c->experts_used);
}

static const struct config_key hunyuan_moe_keys[] = {
    ALIKE,
    {"num_experts", KEY_SPECIAL, .read = read_experts, .write = experts_write_count},
    {"moe_topk", KEY_SPECIAL, .write = write_used},
    {"use_mixed_mlp_moe", KEY_ONLY_TRUE},
    {"pretraining_tp", KEY_ONLY_ONE},
    {"norm_topk_prob", KEY_ONLY_TRUE},
    {"moe_layer_num_skipped", KEY_SPECIAL, .read = read_skipped},
    {"unified_router", KEY_ONLY_FALSE},
    {"output_router_logits", KEY_FIELD, AT_router_aux_used, 0},
    {NULL},
};
static const struct experts_form form = {
    .router = ROUTER_SOFTMAX, .gate = "mlp.gate.wg", EXPERTS_STACKS, .shared = "mlp.shared_mlp"};
LLAMA_FAMILY(hunyuan_moe, "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", 10000, 2048, experts_layer, derive_experts, .all_heads = 1,
             .experts = &form);
