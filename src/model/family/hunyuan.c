/* HunYuan: Llama with norms of q and k of each head, after rotation. */
#include "model/family/llama.h"

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned attention = c->attention_bias ? LINEAR_BIAS : 0, mlp = c->mlp_bias ? LINEAR_BIAS : 0;
    llama_build(b, l,
                &(struct llama_layer){attention, attention, mlp, .q_norm = "self_attn.query_layernorm",
                                      .k_norm = "self_attn.key_layernorm", .norm_last = 1});
}

static const struct config_word hunyuan_norms[] = {{"rms", 0}, {"hf_rms", 0}, {NULL, 0}};
static const struct config_key hunyuan_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"use_qk_norm", KEY_ONLY_TRUE},
    {"use_rotary_pos_emb", KEY_ONLY_TRUE},
    {"position_embedding_xdrope", KEY_ONLY_FALSE},
    {"use_cla", KEY_ONLY_FALSE},
    {"use_mixed_mlp_moe", KEY_ONLY_FALSE},
    {"num_experts", KEY_ONLY_ONE},
    {"norm_type", KEY_WORD, NO_FIELD, .words = hunyuan_norms},
    {"attention_head_dim", KEY_SPECIAL}, /* repeats head_dim; the keys after it concern images or features that are off */
    {"cla_share_factor", KEY_SPECIAL},
    {"add_classification_head", KEY_ONLY_FALSE},
    {"class_num", KEY_SPECIAL},
    {"dense_list", KEY_SPECIAL},
    {"pool_type", KEY_SPECIAL},
    {"group_limited_greedy", KEY_SPECIAL},
    {"routed_scaling_factor", KEY_SPECIAL},
    {"num_media_embeds", KEY_SPECIAL},
    {"org_vocab_size", KEY_SPECIAL},
    {"eod_token_id", KEY_SPECIAL},
    {"pad_id", KEY_SPECIAL},
    {"mask_init_id", KEY_SPECIAL},
    {"im_start_id", KEY_SPECIAL},
    {"im_end_id", KEY_SPECIAL},
    {"im_newline_id", KEY_SPECIAL},
    {"text_start_id", KEY_SPECIAL},
    {"text_end_id", KEY_SPECIAL},
    {"video_start_id", KEY_SPECIAL},
    {"video_end_id", KEY_SPECIAL},
    {NULL},
};
LLAMA_FAMILY(hunyuan, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", 10000, 2048, layer, llama_derive, .all_heads = 1);
