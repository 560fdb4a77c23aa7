/* Qwen3.5 (text), dense and with experts, and Qwen3-Next: norms multiply by 1 + w, those of queries and keys of each head, too; a part of each head is rotated. A head's
 * output is multiplied by the sigmoid of its gate, whose map lies beside the queries' in q_proj. Most layers have a gated delta rule
 * in place of attention. */
#include "model/family/experts.h"
#include "model/family/recurrent.h"

static void attention(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->attention_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_ATTENTION);
    struct attention_block *a = &block->attention;
    const struct attention_shape *s = build_shape(b, a);
    const int64_t dim = c->dim, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, rows[] = {s->head_dim, s->head_dim};
    block->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    const struct model_linear gated = build_interleaved(b, "self_attn.q_proj", dim, 2 * q, 2, rows, form, c->init_std);
    a->q = build_slice(&gated, 0, q);
    a->gate = build_slice(&gated, q, q);
    a->k = build_linear(b, "self_attn.k_proj", dim, kv, form, c->init_std);
    a->v = build_linear(b, "self_attn.v_proj", dim, kv, form, c->init_std);
    a->o = build_linear(b, "self_attn.o_proj", q, dim, form, c->init_std);
    a->q_norm = build_norm_of(b, "self_attn.q_norm", NORM_RMS_ONE, s->head_dim);
    a->k_norm = build_norm_of(b, "self_attn.k_norm", NORM_RMS_ONE, s->head_dim);
}

static void own_maps(struct builder *b, struct recurrent_block *r, int64_t values)
{
    const struct model_config *c = &b->m->config;
    r->qkv = build_linear(b, "linear_attn.in_proj_qkv", c->dim, r->channels, 0, c->init_std);
    r->z = build_linear(b, "linear_attn.in_proj_z", c->dim, values, 0, c->init_std);
    r->b = build_linear(b, "linear_attn.in_proj_b", c->dim, r->heads, 0, c->init_std);
    r->a = build_linear(b, "linear_attn.in_proj_a", c->dim, r->heads, 0, c->init_std);
}

/* Declares Qwen3-Next's maps, whose files go by key head: its query, its key, the values and the gates of the heads that read it. */
static void fused_maps(struct builder *b, struct recurrent_block *r, int64_t values)
{
    const struct model_config *c = &b->m->config;
    const int64_t served = r->heads / r->groups, wide = served * r->value_dim, rows[] = {r->key_dim, r->key_dim, wide, wide},
                  numbers[] = {served, served};
    const struct model_linear qkvz =
        build_interleaved(b, "linear_attn.in_proj_qkvz", c->dim, r->channels + values, 4, rows, 0, c->init_std);
    const struct model_linear ba =
        build_interleaved(b, "linear_attn.in_proj_ba", c->dim, 2 * r->heads, 2, numbers, 0, c->init_std);
    const int64_t keys = r->groups * r->key_dim;
    r->qkv = build_slice(&qkvz, 0, r->channels);
    r->z = build_slice(&qkvz, r->channels, values);
    if (c->base != BASE_STORED) { /* products of a quantised matrix read heads of one map */
        r->qkv = build_slice(&qkvz, 0, keys);
        r->second = build_slice(&qkvz, keys, keys);
        r->third = build_slice(&qkvz, 2 * keys, values);
    }
    r->b = build_slice(&ba, 0, r->heads);
    r->a = build_slice(&ba, r->heads, r->heads);
}

static void delta(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = recurrent_delta(b, l);
    struct recurrent_block *r = &block->recurrent;
    const int64_t values = r->heads * r->value_dim;
    block->norm = build_norm(b, "input_layernorm", NORM_RMS_ONE);
    (c->family == FAMILY_QWEN3_NEXT ? fused_maps : own_maps)(b, r, values);
    r->out = build_linear(b, "linear_attn.out_proj", values, c->dim, 0, c->init_std);
    r->conv = build_conv(b, "linear_attn.conv1d", r->channels, r->width, c->init_std);
    r->a_log = build_vector_of(b, "linear_attn.A_log", r->heads, INIT_DECAY);
    r->dt_bias = build_vector_of(b, "linear_attn.dt_bias", r->heads, INIT_ONES);
    r->heads_norm = build_norm_of(b, "linear_attn.norm", NORM_RMS, r->value_dim);
}

static void mixer(struct builder *b, int l)
{
    build_layer_prefix(b, "model.layers.", l);
    if (recurrent_mixer(&b->m->config, l) == LIST_RECURRENT)
        delta(b, l);
    else
        attention(b, l);
}

static void layer(struct builder *b, int l)
{
    mixer(b, l);
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    mlp->norm = build_norm(b, "post_attention_layernorm", NORM_RMS_ONE);
    common_mlp(b, &mlp->mlp, 0);
}

static void layer_moe(struct builder *b, int l)
{
    mixer(b, l);
    experts_mlp(b, l, "post_attention_layernorm");
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.norm", NORM_RMS_ONE);
}

/* ---- config.json ---- */

static const struct recurrent_words words = {"full_attention", "linear_attention"};

static enum status read_layers(struct config_reader *r, struct model_config *c)
{
    int64_t interval = 4;
    TRY(config_read_count(r, "full_attention_interval", OPTIONAL, 1, &interval));
    return recurrent_read_types(r, c, &words, interval);
}

static json_t *list_layers(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

/* Reads the number of layers that predict further tokens. Without the key files may have some, too. */
static enum status read_further(struct config_reader *r, struct model_config *c)
{
    c->further_layers = 1;
    return config_read_count(r, "mtp_num_hidden_layers", OPTIONAL, 0, &c->further_layers);
}

static json_t *write_further(const struct model_config *c)
{
    return json_integer(c->further_layers);
}

static const struct config_word swish[] = {{"swish", 0}, {"silu", 0}, {NULL, 0}};

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 4;
    if (!c->head_dim)
        c->head_dim = 256;
    if (!c->max_positions)
        c->max_positions = 32768;
    return common_derive(r, c);
}

static enum status derive_moe(struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = 2;
    if (!c->ffn)
        c->ffn = c->expert_ffn;
    if (c->family == FAMILY_QWEN3_5_MOE)
        c->router_normalises = 1;
    return derive(r, c);
}

static enum status read_shared(struct config_reader *r, struct model_config *c)
{
    c->shared_ffn = 512;
    return config_read_count(r, "shared_expert_intermediate_size", OPTIONAL, 1, &c->shared_ffn);
}

/* Keys of all; mtp_use_dedicated_embeddings is about layers that are not part of the model. */
#define ALIKE                                                                                                         \
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu}, {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},        \
        {"tie_word_embeddings", KEY_FIELD, AT_tied, 0}, {"attention_bias", KEY_FIELD, AT_attention_bias, 0},          \
        {"layer_types", KEY_SPECIAL, .read = read_layers, .write = list_layers}, {"attn_output_gate", KEY_ONLY_TRUE}, \
        {"output_gate_type", KEY_WORD, NO_FIELD, 0, swish}, SHARE_KEY, RECURRENT_KEYS(4, 128, 128, 16, 32),           \
        {"mamba_ssm_dtype", KEY_WORD, NO_FIELD, 0, recurrent_float32},                                                \
        {"mtp_num_hidden_layers", KEY_SPECIAL, .read = read_further, .write = write_further},                         \
    {                                                                                                                 \
        "mtp_use_dedicated_embeddings", KEY_SPECIAL                                                                   \
    }

#define EXPERTS_ALIKE                                                                     \
    EXPERTS_KEY("num_experts"), {"moe_intermediate_size", KEY_FIELD, AT_expert_ffn, 512}, \
        {"shared_expert_intermediate_size", KEY_SPECIAL, .read = read_shared, .write = experts_write_width}, EXPERTS_AUX

/* mlp_only_layers is about experts in some layers only, of which no release of these makes use. */
static const struct config_key keys[] = {ALIKE, {"mlp_only_layers", KEY_SPECIAL}, {NULL}};
static const struct config_key moe_keys[] = {
    ALIKE,
    EXPERTS_ALIKE,
    {"num_experts_per_tok", KEY_FIELD, AT_experts_used, 8},
    {"norm_topk_prob", KEY_ONLY_TRUE},
    {"mlp_only_layers", KEY_SPECIAL},
    {NULL},
};
static const struct config_key next_keys[] = {
    ALIKE,
    EXPERTS_ALIKE,
    {"num_experts_per_tok", KEY_FIELD, AT_experts_used, 10},
    {"norm_topk_prob", KEY_FIELD, AT_router_normalises, 1},
    {"decoder_sparse_step", KEY_SPECIAL, .read = experts_read_step, .write = experts_write_one},
    {"mlp_only_layers", KEY_SPECIAL, .write = experts_list_dense},
    {"use_sliding_window", KEY_ONLY_FALSE},
    {NULL},
};

static const struct experts_form experts = {.router = ROUTER_SOFTMAX,
                                            .norm = NORM_RMS_ONE,
                                            .gate = "mlp.gate",
                                            EXPERTS_STACKS,
                                            .shared = "mlp.shared_expert",
                                            .shared_map = "mlp.shared_expert_gate",
                                            .count = {"num_experts"},
                                            .aux = 0.001};

const struct family family_qwen3_5 = {.name = "qwen3_5_text",
                                      .class = "Qwen3_5ForCausalLM",
                                      .theta = 10000,
                                      .partial = 1,
                                      .share = 0.25,
                                      .keys = {common_keys, keys},
                                      .buffers = common_buffers,
                                      .embedding = common_embedding,
                                      .check = recurrent_check,
                                      .derive = derive,
                                      .layer = layer,
                                      .head = head};

#define WITH_EXPERTS(lower, type, classes, list)                         \
    const struct family family_##lower = {.name = type,                  \
                                          .class = classes,              \
                                          .theta = 10000,                \
                                          .partial = 1,                  \
                                          .share = 0.25,                 \
                                          .experts = &experts,           \
                                          .optional_ffn = 1,             \
                                          .keys = {common_keys, list},   \
                                          .buffers = common_buffers,     \
                                          .embedding = common_embedding, \
                                          .check = recurrent_check,      \
                                          .derive = derive_moe,          \
                                          .layer = layer_moe,            \
                                          .head = head}

WITH_EXPERTS(qwen3_5_moe, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", moe_keys);
WITH_EXPERTS(qwen3_next, "qwen3_next", "Qwen3NextForCausalLM", next_keys);
