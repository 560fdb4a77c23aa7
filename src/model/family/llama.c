/* Llama and its nearest relatives: RMS norms, rotary positions, grouped heads, SwiGLU.
 *
 * Mistral, Ministral and CWM may have a sliding window. Ministral 3 scales queries by position. Qwen2 and Seed-OSS have biases on
 * q, k and v. Qwen3 has norms of q and k of each head; HunYuan has them after rotation. SmolLM3 has layers without positions.
 * ERNIE 4.5 and Helium rotate neighbouring pairs. Arcee's MLP has two maps with a squared ReLU between. */
#include "model/family/common.h"

/* Returns the form of the MLP's maps; ERNIE 4.5 has one key for all its biases. */
static unsigned mlp_form(const struct model_config *c)
{
    return c->mlp_bias || (c->family == FAMILY_ERNIE4_5 && c->attention_bias) ? LINEAR_BIAS : 0;
}

static void norm_heads(struct builder *b, struct attention_block *a, const char *q, const char *k)
{
    const int64_t head_dim = build_shape(b, a)->head_dim;
    a->q_norm = build_norm_of(b, q, NORM_RMS, head_dim);
    a->k_norm = build_norm_of(b, k, NORM_RMS, head_dim);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    int qkv_biased = c->attention_bias || c->family == FAMILY_QWEN2;
    int o_biased = c->attention_bias && c->family != FAMILY_SEED_OSS && c->family != FAMILY_HELIUM;
    struct model_block *attention = build_block(b, l, BLOCK_ATTENTION), *mlp = build_block(b, l, BLOCK_MLP);
    build_prefix(b, "model.layers.%d.", l);
    attention->norm = build_norm(b, "input_layernorm", NORM_RMS);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS);
    common_attention(b, &attention->attention, qkv_biased ? LINEAR_BIAS : 0, o_biased ? LINEAR_BIAS : 0);
    if (c->family == FAMILY_QWEN3)
        norm_heads(b, &attention->attention, "self_attn.q_norm", "self_attn.k_norm");
    if (c->family == FAMILY_HUNYUAN)
        norm_heads(b, &attention->attention, "self_attn.query_layernorm", "self_attn.key_layernorm");
    attention->attention.norm_last = c->family == FAMILY_HUNYUAN;
    if (c->family == FAMILY_ARCEE)
        common_ungated_mlp(b, &mlp->mlp, mlp_form(c));
    else
        common_mlp(b, &mlp->mlp, mlp_form(c));
}

/* ---- config.json ---- */

static enum status read_no_window(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "sliding_window");
}

/* Reads Mistral's window: 4096 without the key, as in transformers; none if null. */
static enum status read_mistral_window(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 4096, 0);
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

/* Reads SmolLM3's layers. A window that is used belongs to the layers without positions, unless layer_types says otherwise. */
static enum status read_smollm3_layers(struct config_reader *r, struct model_config *c)
{
    TRY(config_read_unrotated(r, c));
    return common_read_used_window(r, c);
}

/* Reads CWM's window: the first of every four layers has none. Without keys, positions are scaled as in the published model. */
static enum status read_cwm_window(struct config_reader *r, struct model_config *c)
{
    if (json_object_size(config_get(r, "rope_scaling")) == 0 && !config_get(r, "rope_parameters")) {
        c->rope = ROPE_LLAMA3;
        c->rope_factor = 16.0;
        c->rope_low_freq = 1.0;
        c->rope_high_freq = 4.0;
        c->rope_original_positions = 8192.0;
    }
    return common_read_pattern(r, c, 8192, -4);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    static const int64_t positions[N_FAMILIES] = {
        [FAMILY_LLAMA] = 2048,  [FAMILY_MISTRAL] = 4096 * 32,   [FAMILY_MINISTRAL3] = 262144, [FAMILY_QWEN2] = 32768,
        [FAMILY_QWEN3] = 32768, [FAMILY_SMOLLM3] = 32768,       [FAMILY_SEED_OSS] = 524288,   [FAMILY_ERNIE4_5] = 131072,
        [FAMILY_ARCEE] = 4096,  [FAMILY_MINISTRAL] = 4096 * 32, [FAMILY_CWM] = 131072,        [FAMILY_HELIUM] = 4096,
        [FAMILY_HUNYUAN] = 2048};
    static const int64_t head_dim[N_FAMILIES] = {[FAMILY_SEED_OSS] = 128,
                                                 [FAMILY_ERNIE4_5] = 128,
                                                 [FAMILY_CWM] = 128,
                                                 [FAMILY_HELIUM] = 128}; /* null: hidden_size / heads */
    const json_t *parameters = json_object_get(r->object, "rope_parameters");
    if (c->family == FAMILY_MINISTRAL3 && !parameters && !json_object_get(r->object, "rope_scaling"))
        return config_missing(r, "rope_parameters");
    int all_heads = c->family == FAMILY_LLAMA || c->family == FAMILY_ARCEE || c->family == FAMILY_HUNYUAN;
    if (!c->kv_heads && !all_heads)
        return config_missing(r, "num_key_value_heads");
    if (!c->head_dim && c->family == FAMILY_QWEN3)
        c->head_dim = 128;
    if (!json_object_get(r->object, "head_dim"))
        c->head_dim = max_i64(c->head_dim, head_dim[c->family]);
    if (!c->max_positions)
        c->max_positions = positions[c->family];
    if (c->family == FAMILY_HELIUM && c->head_dim * c->heads != c->dim)
        return config_refuse(r, "head_dim", "must be hidden_size / num_attention_heads");
    c->rope_interleaved = c->family == FAMILY_ERNIE4_5 || c->family == FAMILY_HELIUM;
    return common_derive(r, c);
}

#define SILU_KEY                                                \
    {                                                           \
        "hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu \
    }
#define ALIKE(tied) ALIKE_BUT(tied, 1e-6)
#define ALIKE_BUT(tied, eps)                                 \
    SILU_KEY, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, eps}, \
    {                                                        \
        "tie_word_embeddings", KEY_FIELD, AT_tied, tied      \
    }
#define BIASES                                           \
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0}, \
    {                                                    \
        "mlp_bias", KEY_FIELD, AT_mlp_bias, 0            \
    }

static const struct config_key llama_keys[] = {
    ALIKE(0),
    BIASES,
    {"pretraining_tp", KEY_ONLY_ONE},
    {"use_sliding_window", KEY_ONLY_FALSE},
    {"sliding_window", KEY_SPECIAL, .read = read_no_window},
    {NULL},
};
static const struct config_key mistral_keys[] = {
    ALIKE(0),
    WINDOW_KEY(read_mistral_window),
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key ministral3_keys[] = {
    ALIKE(0),
    WINDOW_KEY(common_read_window),
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key qwen2_keys[] = {
    ALIKE(0),
    USED_WINDOW_KEYS,
    {"dual_chunk_attention_config", KEY_SPECIAL, .read = read_dual_chunks},
    {NULL},
};
static const struct config_key qwen3_keys[] = {
    ALIKE(0),         {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    USED_WINDOW_KEYS, {"dual_chunk_attention_config", KEY_SPECIAL, .read = read_dual_chunks},
    {NULL},
};
static const struct config_key smollm3_keys[] = {
    ALIKE(1),
    BIASES,
    {"no_rope_layers", KEY_SPECIAL, .read = read_smollm3_layers, .write = config_write_unrotated},
    {"sliding_window", KEY_SPECIAL, .write = common_write_window},
    {"use_sliding_window", KEY_SPECIAL, .write = common_write_use},
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key seed_oss_keys[] = {
    ALIKE(0),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 1},
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attention_out_bias", KEY_ONLY_FALSE},
    {"residual_dropout", KEY_DROPOUT},
    {NULL},
};
static const struct config_key ernie4_5_keys[] = {
    ALIKE_BUT(1, 1e-5),
    {"use_bias", KEY_FIELD, AT_attention_bias, 0},
    {NULL},
};
static const struct config_key arcee_keys[] = {
    {"hidden_act", KEY_WORD, AT_activation, RELU_SQUARED, common_ungated},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    BIASES,
    {NULL},
};
static const struct config_key ministral_keys[] = {
    ALIKE(0),
    WINDOW_KEY(read_mistral_window),
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key cwm_keys[] = {
    ALIKE_BUT(0, 1e-5),
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attention_bias", KEY_ONLY_FALSE},
    WINDOW_KEY(read_cwm_window),
    LISTED_TYPES_KEY,
    {NULL},
};
static const struct config_key helium_keys[] = {
    ALIKE_BUT(0, 1e-8),
    BIASES,
    {NULL},
};

static const struct config_word hunyuan_norms[] = {{"rms", 0}, {"hf_rms", 0}, {NULL, 0}};
static const struct config_key hunyuan_keys[] = {
    ALIKE_BUT(0, 1e-5),
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"use_qk_norm", KEY_ONLY_TRUE},
    {"use_rotary_pos_emb", KEY_ONLY_TRUE},
    {"position_embedding_xdrope", KEY_ONLY_FALSE},
    {"use_cla", KEY_ONLY_FALSE},
    {"use_mixed_mlp_moe", KEY_ONLY_FALSE},
    {"num_experts", KEY_ONLY_ONE},
    {"norm_type", KEY_WORD, NO_FIELD, .words = hunyuan_norms},
    {"attention_head_dim", KEY_SPECIAL}, /* repeats head_dim; the next keys concern features that are off, or images */
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

#define FAMILY(variable, model_type, architecture, ...)                              \
    const struct family family_##variable = {.name = model_type,                     \
                                             .class = architecture,                  \
                                             .keys = {common_keys, variable##_keys}, \
                                             COMMON,                                 \
                                             .derive = derive,                       \
                                             .layer = layer,                         \
                                             .head = common_head,                    \
                                             __VA_ARGS__}
FAMILY(llama, "llama", "LlamaForCausalLM", .theta = 10000);
FAMILY(mistral, "mistral", "MistralForCausalLM", .theta = 10000);
FAMILY(ministral3, "ministral3", "Ministral3ForCausalLM", .theta = 10000);
FAMILY(qwen2, "qwen2", "Qwen2ForCausalLM", .theta = 10000);
FAMILY(qwen3, "qwen3", "Qwen3ForCausalLM", .theta = 10000);
FAMILY(smollm3, "smollm3", "SmolLM3ForCausalLM", .theta = 2000000);
FAMILY(seed_oss, "seed_oss", "SeedOssForCausalLM", .theta = 10000);
FAMILY(ernie4_5, "ernie4_5", "Ernie4_5ForCausalLM", .class_before = "Ernie4_5_ForCausalLM", .theta = 500000);
FAMILY(arcee, "arcee", "ArceeForCausalLM", .theta = 10000);
FAMILY(ministral, "ministral", "MinistralForCausalLM", .theta = 10000);
FAMILY(cwm, "cwm", "CwmForCausalLM", .theta = 1000000);
FAMILY(helium, "helium", "HeliumForCausalLM", .theta = 100000);
FAMILY(hunyuan, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", .theta = 10000);
