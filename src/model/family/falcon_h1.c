/* Falcon-H1: attention and a Mamba-2 mixer side by side in each layer, after one norm, then an MLP; factors of what most maps give. */
#include "model/family/mamba.h"

#include <string.h>

static float factor(double a, double b)
{
    const double x = (a > 0.0 ? a : 1.0) * (b > 0.0 ? b : 1.0);
    return x == 1.0 ? 0.0f : (float)x;
}

static void attention(struct builder *b, struct attention_block *a)
{
    const struct model_config *c = &b->m->config;
    common_attention(b, a, 0, 0);
    a->q.factor = a->v.factor = factor(c->attention_in, 1.0);
    a->k.factor = factor(c->attention_in, c->key_factor);
    a->o.factor = factor(c->attention_out, 1.0);
}

/* Declares the mixer. Values, keys and queries are maps of their own where they have factors of their own. */
static void mixer(struct builder *b, int l, const struct model_norm *norm)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = mamba_mixer(b, l, "mamba", (enum scan_norm)c->scan_norm);
    struct recurrent_block *r = &block->recurrent;
    const int64_t values = r->heads * r->value_dim, keys = r->groups * r->key_dim, first = r->qkv.first_out;
    block->parallel = 1;
    block->norm = *norm;
    r->z.factor = factor(c->ssm_in, c->ssm_gates);
    r->a.factor = factor(c->ssm_in, c->ssm_steps);
    r->out.factor = factor(c->ssm_out, 1.0);
    if (c->ssm_values != c->ssm_keys || c->ssm_keys != c->ssm_queries) {
        r->third = build_slice(&r->qkv, first + values + keys, keys);
        r->second = build_slice(&r->qkv, first + values, keys);
        r->qkv = build_slice(&r->qkv, first, values);
        r->third.factor = factor(c->ssm_in, c->ssm_queries);
        r->second.factor = factor(c->ssm_in, c->ssm_keys);
    }
    r->qkv.factor = factor(c->ssm_in, c->ssm_values);
}

static void layer(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    build_layer_prefix(b, "model.layers.", l);
    struct model_block *first = build_block(b, l, BLOCK_ATTENTION);
    first->norm = build_norm(b, "input_layernorm", NORM_RMS);
    attention(b, &first->attention);
    mixer(b, l, &first->norm);
    struct model_block *mlp = build_block(b, l, BLOCK_MLP);
    struct mlp_block *m = &mlp->mlp;
    mlp->norm = build_norm(b, "pre_ff_layernorm", NORM_RMS);
    m->gate = build_linear(b, "feed_forward.gate_proj", c->dim, c->ffn, 0, c->init_std);
    m->up = build_linear(b, "feed_forward.up_proj", c->dim, c->ffn, 0, c->init_std);
    m->down = build_linear(b, "feed_forward.down_proj", c->ffn, c->dim, 0, c->init_std);
    m->gate.factor = factor(c->gate_factor, 1.0);
    m->down.factor = factor(c->down_factor, 1.0);
    m->kind = c->gate;
}

static void head(struct builder *b)
{
    build_head(b);
    b->m->final_norm = build_norm(b, "model.final_layernorm", NORM_RMS);
}

/* ---- config.json ---- */

/* Reads the columns of all heads together, which heads share out. */
static enum status read_sizes(struct config_reader *r, struct model_config *c)
{
    const json_t *size = config_get(r, "mamba_d_head");
    int64_t values = 1024, expand = 2;
    TRY(config_read_count(r, "mamba_expand", OPTIONAL, 1, &expand));
    if (json_is_null(json_object_get(r->object, "mamba_d_ssm")) && expand <= 1 << 10)
        values = expand * c->dim;
    TRY(config_read_count(r, "mamba_d_ssm", OPTIONAL, 1, &values));
    if (values % c->scan_heads)
        return config_refuse(r, "mamba_d_ssm", "must be a multiple of mamba_n_heads");
    c->scan_value = values / c->scan_heads;
    if (!size || (json_is_string(size) && strcmp(json_string_value(size), "auto") == 0))
        return OK;
    if (!json_is_integer(size) || json_integer_value(size) != c->scan_value)
        return config_refuse(r, "mamba_d_head", "must be \"auto\", or mamba_d_ssm by mamba_n_heads");
    return OK;
}

static json_t *write_columns(const struct model_config *c)
{
    return json_integer(c->scan_heads * c->scan_value);
}

static enum status read_norm(struct config_reader *r, struct model_config *c)
{
    int normalises = 0, first = 1;
    TRY(config_read_bool(r, "mamba_rms_norm", &normalises));
    TRY(config_read_bool(r, "mamba_norm_before_gate", &first));
    c->scan_norm = !normalises ? SCAN_NORM_NONE : first ? SCAN_NORM_FIRST : SCAN_NORM_LAST;
    return OK;
}

static json_t *write_norm(const struct model_config *c)
{
    return json_boolean(c->scan_norm != SCAN_NORM_NONE);
}

static json_t *write_order(const struct model_config *c)
{
    return json_boolean(c->scan_norm != SCAN_NORM_LAST);
}

/* Reads a list of n factors, 1 if the key is absent. */
static enum status read_factors(struct config_reader *r, const char *key, size_t n, double *const out[])
{
    const json_t *list = config_get(r, key);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        *out[i] = list ? json_number_value(x) : 1.0;
        if (list && (json_array_size(list) != n || !json_is_number(x) || !(*out[i] > 0.0)))
            return config_refuse(r, key, "must be a list of positive numbers, one for each part");
    }
    return OK;
}

static enum status read_ssm(struct config_reader *r, struct model_config *c)
{
    double *const out[] = {&c->ssm_gates, &c->ssm_values, &c->ssm_keys, &c->ssm_queries, &c->ssm_steps};
    return read_factors(r, "ssm_multipliers", 5, out);
}

static json_t *write_ssm(const struct model_config *c)
{
    return json_pack("[f, f, f, f, f]", c->ssm_gates, c->ssm_values, c->ssm_keys, c->ssm_queries, c->ssm_steps);
}

static enum status read_mlp(struct config_reader *r, struct model_config *c)
{
    double *const out[] = {&c->gate_factor, &c->down_factor};
    return read_factors(r, "mlp_multipliers", 2, out);
}

static json_t *write_mlp(const struct model_config *c)
{
    return json_pack("[f, f]", c->gate_factor, c->down_factor);
}

static enum status derive(struct config_reader *r, struct model_config *c)
{
    const double all[] = {c->attention_in, c->attention_out,   c->key_factor, c->ssm_in,
                          c->ssm_out,      c->embedding_scale, c->logit_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i] > 0.0))
            return config_refuse(r, "attention_in_multiplier", "this and all other factors of the model must be positive");
    if (!c->kv_heads)
        c->kv_heads = 8;
    if (!c->max_positions)
        c->max_positions = 8192;
    return common_derive(r, c);
}

static enum status check(const struct model_config *c)
{
    if (c->scan_heads % c->scan_groups)
        return status_fail(ERR_INVALID, "model: %lld recurrent heads cannot share %lld key heads, must be a multiple",
                           (long long)c->scan_heads, (long long)c->scan_groups);
    return common_check(c);
}

static const struct config_key keys[] = {
    {"hidden_act", KEY_WORD, AT_gate, GATE_SILU, common_silu},
    {"rms_norm_eps", KEY_FIELD, AT_norm_eps, 1e-5},
    {"tie_word_embeddings", KEY_FIELD, AT_tied, 0},
    {"attention_bias", KEY_ONLY_FALSE},
    {"mlp_bias", KEY_ONLY_FALSE},
    {"projectors_bias", KEY_ONLY_FALSE},
    {"mamba_proj_bias", KEY_ONLY_FALSE},
    {"mamba_n_heads", KEY_FIELD, AT_scan_heads, 128},
    {"mamba_n_groups", KEY_FIELD, AT_scan_groups, 1},
    {"mamba_d_state", KEY_FIELD, AT_scan_key, 256},
    {"mamba_d_conv", KEY_FIELD, AT_conv_width, 4},
    {"mamba_conv_bias", KEY_FIELD, AT_conv_bias, 1},
    {"mamba_d_ssm", KEY_SPECIAL, .read = read_sizes, .write = write_columns},
    {"mamba_rms_norm", KEY_SPECIAL, .read = read_norm, .write = write_norm},
    {"mamba_norm_before_gate", KEY_SPECIAL, .write = write_order},
    {"time_step_limit", KEY_SPECIAL, .read = mamba_read_limit, .write = mamba_write_limit},
    {"lm_head_multiplier", KEY_FIELD, AT_logit_scale, 1.0},
    {"embedding_multiplier", KEY_FIELD, AT_embedding_scale, 1.0},
    {"attention_in_multiplier", KEY_FIELD, AT_attention_in, 1.0},
    {"attention_out_multiplier", KEY_FIELD, AT_attention_out, 1.0},
    {"key_multiplier", KEY_FIELD, AT_key_factor, 1.0},
    {"ssm_in_multiplier", KEY_FIELD, AT_ssm_in, 1.0},
    {"ssm_out_multiplier", KEY_FIELD, AT_ssm_out, 1.0},
    {"ssm_multipliers", KEY_SPECIAL, .read = read_ssm, .write = write_ssm},
    {"mlp_multipliers", KEY_SPECIAL, .read = read_mlp, .write = write_mlp},
    {"mamba_d_head", KEY_SPECIAL}, /* this and the next keys follow from others, or are no part of the model */
    {"mamba_expand", KEY_SPECIAL},
    {"mamba_chunk_size", KEY_SPECIAL},
    {"mamba_use_mlp", KEY_ONLY_TRUE},
    {"mlp_expansion_factor", KEY_SPECIAL},
    {"attn_layer_indices", KEY_SPECIAL},
    {"num_logits_to_keep", KEY_SPECIAL},
    {NULL},
};

const struct family family_falcon_h1 = {.name = "falcon_h1",
                                        .class = "FalconH1ForCausalLM",
                                        .unadapted = "out_proj",
                                        .theta = 10000,
                                        .keys = {common_keys, keys},
                                        .buffers = common_buffers,
                                        .embedding = common_embedding,
                                        .check = check,
                                        .derive = derive,
                                        .layer = layer,
                                        .head = head};
