/* OLMo Hybrid: a gated delta rule with maps, and convolutions, of queries, keys and values apart before an MLP in most layers, with
 * norms before both; attention with norms of what blocks give, as OLMo 2's, in the others. */
#include "model/family/recurrent.h"

#include <string.h>

static void delta(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = recurrent_delta(b, l);
    struct recurrent_block *r = &block->recurrent;
    const int64_t keys = r->groups * r->key_dim, values = r->heads * r->value_dim;
    block->norm = build_norm(b, "attention_layer_norm", NORM_RMS);
    r->qkv = build_linear(b, "linear_attn.q_proj", c->dim, keys, 0, c->init_std);
    r->second = build_linear(b, "linear_attn.k_proj", c->dim, keys, 0, c->init_std);
    r->third = build_linear(b, "linear_attn.v_proj", c->dim, values, 0, c->init_std);
    r->a = build_linear(b, "linear_attn.a_proj", c->dim, r->heads, 0, c->init_std);
    r->b = build_linear(b, "linear_attn.b_proj", c->dim, r->heads, 0, c->init_std);
    r->z = build_linear(b, "linear_attn.g_proj", c->dim, values, 0, c->init_std);
    r->out = build_linear(b, "linear_attn.o_proj", values, c->dim, 0, c->init_std);
    r->conv = build_conv(b, "linear_attn.q_conv1d", keys, r->width, c->init_std);
    build_conv(b, "linear_attn.k_conv1d", keys, r->width, c->init_std);
    build_conv(b, "linear_attn.v_conv1d", values, r->width, c->init_std);
    r->convs = 3;
    r->a_log = build_vector_of(b, "linear_attn.A_log", r->heads, INIT_DECAY);
    r->dt_bias = build_vector_of(b, "linear_attn.dt_bias", r->heads, INIT_ONES);
    r->strength = c->scan_strength > 0.0 ? (float)c->scan_strength : 1.0f;
    r->heads_norm = build_norm_of(b, "linear_attn.o_norm", NORM_RMS, r->value_dim);
    r->heads_norm.eps = 1e-5f;
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    mlp->norm = build_norm(b, "feedforward_layer_norm", NORM_RMS);
    common_mlp(b, &mlp->mlp, 0);
}

static void layer(struct builder *b, int l)
{
    build_layer_prefix(b, "model.layers.", l);
    (recurrent_mixer(&b->m->config, l) == LIST_RECURRENT ? delta : common_normed_after)(b, l);
}

/* ---- config.json ---- */

static const struct recurrent_words words = {"full_attention", "linear_attention"};

/* Reads layer_types. Without the key every fourth layer has attention or, if none does, the last one. */
static enum status read_types(struct config_reader *r, struct model_config *c)
{
    TRY(recurrent_read_types(r, c, &words, 4));
    if (c->layers < 4 && !config_get(r, "layer_types"))
        c->blocks_of[c->layers - 1] = LIST_ATTENTION;
    return OK;
}

static json_t *list_types(const struct model_config *c)
{
    return recurrent_list_types(c, &words);
}

/* Reads whether there are rotary positions: none with a rope_type of null, which transformers 5.24 does not load, or a rope_theta of
 * null. */
static enum status read_positions(struct config_reader *r, struct model_config *c)
{
    const json_t *rope = config_get(r, "rope_parameters");
    if (!json_is_object(rope))
        return config_refuse(
            r, "rope_parameters",
            "releases of transformers read it differently: give {\"rope_type\": \"default\", \"rope_theta\": null} for no positions");
    if (json_is_null(json_object_get(rope, "rope_type")) || json_is_null(json_object_get(rope, "rope_theta")))
        memset(c->unrotated, 0xff, sizeof c->unrotated);
    return OK;
}

static json_t *write_positions(const struct model_config *c)
{
    return model_bit(c->unrotated, 0) ? json_pack("{s:s, s:n}", "rope_type", "default", "rope_theta")
                                      : config_write_rope_parameters(c);
}

static enum status read_count(struct config_reader *r, const char *key, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    return config_read_count(r, key, OPTIONAL, 1, out);
}

/* Reads the sizes of a recurrence, which follow from those of attention unless they are given. */
static enum status read_sizes(struct config_reader *r, struct model_config *c)
{
    TRY(read_count(r, "linear_num_key_heads", c->heads, &c->scan_groups));
    TRY(read_count(r, "linear_num_value_heads", c->heads, &c->scan_heads));
    TRY(read_count(r, "linear_key_head_dim", (int64_t)(0.75 * (double)c->dim / (double)max_i64(c->scan_groups, 1)),
                   &c->scan_key));
    return read_count(r, "linear_value_head_dim", 2 * c->scan_key, &c->scan_value);
}

#define WRITE(name, member)                           \
    static json_t *name(const struct model_config *c) \
    {                                                 \
        return json_integer((json_int_t)c->member);   \
    }
WRITE(write_groups, scan_groups)
WRITE(write_heads, scan_heads)
WRITE(write_key, scan_key)
WRITE(write_value, scan_value)

/* Reads whether strengths reach 2. */
static enum status read_strength(struct config_reader *r, struct model_config *c)
{
    int twice = 1;
    TRY(config_read_bool(r, "linear_allow_neg_eigval", &twice));
    c->scan_strength = twice ? 2.0 : 0.0;
    return OK;
}

static json_t *write_strength(const struct model_config *c)
{
    return json_boolean(c->scan_strength > 0.0);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    if (!c->max_positions)
        c->max_positions = 65536;
    return common_derive(r, c);
}

static enum status check(const struct model_config *c)
{
    TRY(common_check(c));
    return recurrent_check(c);
}

/* Keys without a reader concern initial values. */
static const struct config_key keys[] = {
    {"rope_parameters", KEY_SPECIAL, .read = read_positions, .write = write_positions},
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-6},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_FIELD, AT_attention_bias, 0},
    {"layer_types", KEY_SPECIAL, .read = read_types, .write = list_types},
    {"linear_num_key_heads", KEY_SPECIAL, .read = read_sizes, .write = write_groups},
    {"linear_num_value_heads", KEY_SPECIAL, .write = write_heads},
    {"linear_key_head_dim", KEY_SPECIAL, .write = write_key},
    {"linear_value_head_dim", KEY_SPECIAL, .write = write_value},
    {"linear_conv_kernel_dim", KEY_FIELD, AT_conv_width, 4},
    {"linear_allow_neg_eigval", KEY_SPECIAL, .read = read_strength, .write = write_strength},
    {"linear_use_gate", KEY_ONLY_TRUE},
    {"linear_a_log_min", KEY_SPECIAL},
    {"linear_a_log_max", KEY_SPECIAL},
    {"linear_dt_min", KEY_SPECIAL},
    {"linear_dt_max", KEY_SPECIAL},
    {"linear_dt_init_floor", KEY_SPECIAL},
    {NULL},
};

const struct family family_olmo_hybrid = {.name = "olmo_hybrid",
                                          .class = "OlmoHybridForCausalLM",
                                          .theta = 10000,
                                          .keys = {common_keys, keys},
                                          .buffers = common_buffers,
                                          .embedding = common_embedding,
                                          .check = check,
                                          .derive = derive,
                                          .layer = layer,
                                          .head = common_head};
