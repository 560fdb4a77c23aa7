/* Mamba-2 mixers: their parameters and keys of config.json. */
#include "model/family/mamba.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

/* Returns the name of a parameter or module below the mixer. */
static const char *below(char name[64], const char *module, const char *what)
{
    snprintf(name, 64, "%s.%s", module, what);
    return name;
}

struct model_block *mamba_mixer(struct builder *b, int l, const char *module, enum scan_norm norm)
{
    const struct model_config *c = &b->m->config;
    const unsigned form = c->scan_bias ? LINEAR_BIAS : 0;
    struct model_block *block = build_block(b, l, BLOCK_RECURRENT);
    struct recurrent_block *r = &block->recurrent;
    char name[64];
    r->kind = RECURRENT_SSD;
    r->heads = c->scan_heads;
    r->groups = c->scan_groups;
    r->key_dim = c->scan_key;
    r->value_dim = c->scan_value;
    r->width = c->conv_width;
    r->least = (float)c->scan_least;
    const int64_t values = r->heads * r->value_dim;
    r->channels = values + 2 * r->groups * r->key_dim;
    const struct model_linear all =
        build_linear(b, below(name, module, "in_proj"), c->dim, values + r->channels + r->heads, form, c->init_std);
    r->z = build_slice(&all, 0, values);
    r->qkv = build_slice(&all, values, r->channels);
    r->a = build_slice(&all, values + r->channels, r->heads);
    r->out = build_linear(b, below(name, module, "out_proj"), values, c->dim, form, c->init_std);
    r->conv = build_conv(b, below(name, module, "conv1d"), r->channels, r->width, c->init_std);
    if (c->conv_bias)
        r->conv_bias = build_vector_of(b, below(name, module, "conv1d.bias"), r->channels, INIT_ZEROS);
    r->a_log = build_vector_of(b, below(name, module, "A_log"), r->heads, INIT_DECAY);
    r->dt_bias = build_vector_of(b, below(name, module, "dt_bias"), r->heads, INIT_ONES);
    r->skip = build_vector_of(b, below(name, module, "D"), r->heads, INIT_ONES);
    if (norm == SCAN_NORM_NONE)
        return block;
    r->heads_norm = build_norm_of(b, below(name, module, "norm"), NORM_RMS, values);
    r->heads_norm.parts = (int)r->groups;
    r->gates_first = norm == SCAN_NORM_LAST;
    return block;
}

/* ---- config.json ---- */

const struct recurrent_words mamba_words = {"full_attention", "linear_attention", "attention", "mamba"};

enum status mamba_read_head(struct config_reader *r, struct model_config *c)
{
    const json_t *size = config_get(r, "mamba_d_head");
    int64_t expand = 2;
    TRY(config_read_count(r, "mamba_expand", OPTIONAL, 1, &expand));
    if (expand > 1 << 10 || expand * c->dim % c->scan_heads)
        return config_refuse(r, "mamba_expand",
                             "mamba_expand times hidden_size must be a multiple of mamba_n_heads, at most 1024 times");
    c->scan_value = expand * c->dim / c->scan_heads;
    if (!size || (json_is_string(size) && strcmp(json_string_value(size), "auto") == 0))
        return OK;
    if (!json_is_integer(size) || json_integer_value(size) != c->scan_value)
        return config_refuse(r, "mamba_d_head", "must be \"auto\", or mamba_expand times hidden_size by mamba_n_heads");
    return OK;
}

json_t *mamba_write_head(const struct model_config *c)
{
    return json_integer(c->scan_value);
}

json_t *mamba_write_expand(const struct model_config *c)
{
    return json_integer(c->scan_heads * c->scan_value / c->dim);
}

/* Tells whether a limit is infinite, as transformers 5 writes it. */
static int is_infinite(const json_t *limit)
{
    const char *word = json_string_value(json_object_get(limit, "__float__"));
    return word && strcmp(word, "Infinity") == 0;
}

enum status mamba_read_limit(struct config_reader *r, struct model_config *c)
{
    const json_t *limits = config_get(r, "time_step_limit");
    const json_t *least = json_array_get(limits, 0);
    c->scan_least = 0.0;
    if (!limits)
        return OK;
    if (json_array_size(limits) != 2 || !json_is_number(least) || !(json_number_value(least) >= 0.0) ||
        !is_infinite(json_array_get(limits, 1)))
        return config_refuse(r, "time_step_limit", "supported: a least step, and infinity as the largest one");
    c->scan_least = json_number_value(least);
    return OK;
}

json_t *mamba_write_limit(const struct model_config *c)
{
    return json_pack("[f, {s:s}]", c->scan_least, "__float__", "Infinity");
}
