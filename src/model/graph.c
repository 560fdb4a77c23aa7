/* From a configuration to the graph: parameters by unit, their order and offsets, and what each layer uses. */
#include "model/model.h"

#include "base/sys.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LLAMA_LAYER_PARAMS = 12, GPT2_LAYER_PARAMS = 12, OTHER_PARAMS = 5, MAX_UNIT_PARAMS = 16 };

/* ---- declaring parameters, unit by unit ---- */

struct builder {
    struct model *m;
    int unit;
    char prefix[64];
};

static void add(struct builder *b, const char *suffix, int64_t rows, int64_t columns, enum param_init init, double std)
{
    struct model_param *p = &b->m->params[b->m->n_params++];
    snprintf(p->name, sizeof p->name, "%s%s", b->prefix, suffix);
    p->shape[0] = rows;
    p->shape[1] = columns;
    p->elements = columns ? rows * columns : rows;
    p->unit = b->unit;
    p->trained = 1;
    p->init = init;
    p->init_std = (float)std;
}

/* Of the matrix added last the first rows only, if there are more; 0: all. */
static void use_rows(struct builder *b, int64_t rows)
{
    struct model_param *p = &b->m->params[b->m->n_params - 1];
    if (rows > 0)
        p->elements = min_i64(rows, p->shape[0]) * p->shape[1];
}

static void begin_unit(struct builder *b, int unit, const char *format, int number)
{
    b->unit = unit;
    snprintf(b->prefix, sizeof b->prefix, format, number);
    b->m->units[unit].first_param = b->m->n_params;
}

static void end_unit(struct builder *b)
{
    struct model_unit *u = &b->m->units[b->unit];
    u->n_params = b->m->n_params - u->first_param;
}

static void declare_llama(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    double std = c->init_std;
    int64_t h = c->heads * c->head_dim, hk = c->kv_heads * c->head_dim;
    begin_unit(b, 0, "model.", 0);
    add(b, "embed_tokens.weight", c->vocab, c->dim, INIT_NORMAL, std);
    end_unit(b);
    for (int l = 0; l < c->layers; l++) {
        begin_unit(b, 1 + l, "model.layers.%d.", l);
        add(b, "self_attn.q_proj.weight", h, c->dim, INIT_NORMAL, std);
        add(b, "self_attn.k_proj.weight", hk, c->dim, INIT_NORMAL, std);
        add(b, "self_attn.v_proj.weight", hk, c->dim, INIT_NORMAL, std);
        add(b, "self_attn.o_proj.weight", c->dim, h, INIT_NORMAL, std);
        add(b, "mlp.gate_proj.weight", c->ffn, c->dim, INIT_NORMAL, std);
        add(b, "mlp.up_proj.weight", c->ffn, c->dim, INIT_NORMAL, std);
        add(b, "mlp.down_proj.weight", c->dim, c->ffn, INIT_NORMAL, std);
        add(b, "input_layernorm.weight", c->dim, 0, INIT_ONES, 0);
        add(b, "post_attention_layernorm.weight", c->dim, 0, INIT_ONES, 0);
        if (c->variant == VARIANT_QWEN2) {
            add(b, "self_attn.q_proj.bias", h, 0, INIT_ZEROS, 0);
            add(b, "self_attn.k_proj.bias", hk, 0, INIT_ZEROS, 0);
            add(b, "self_attn.v_proj.bias", hk, 0, INIT_ZEROS, 0);
        }
        end_unit(b);
    }
    begin_unit(b, 1 + (int)c->layers, "", 0);
    if (!c->tied)
        add(b, "lm_head.weight", c->vocab, c->dim, INIT_NORMAL, std);
    add(b, "model.norm.weight", c->dim, 0, INIT_ONES, 0);
    end_unit(b);
}

static void declare_gpt2(struct builder *b)
{
    const struct model_config *c = &b->m->config;
    double std = c->init_std, residual_std = std / sqrt(2.0 * (double)c->layers); /* GPT-2's scaling of what adds to the stream */
    begin_unit(b, 0, "transformer.", 0);
    add(b, "wte.weight", c->vocab, c->dim, INIT_NORMAL, std);
    add(b, "wpe.weight", c->max_positions, c->dim, INIT_NORMAL, std);
    use_rows(b, c->positions);
    end_unit(b);
    for (int l = 0; l < c->layers; l++) {
        begin_unit(b, 1 + l, "transformer.h.%d.", l);
        add(b, "attn.c_attn.weight", c->dim, 3 * c->dim, INIT_NORMAL, std);
        add(b, "attn.c_proj.weight", c->dim, c->dim, INIT_NORMAL, residual_std);
        add(b, "mlp.c_fc.weight", c->dim, c->ffn, INIT_NORMAL, std);
        add(b, "mlp.c_proj.weight", c->ffn, c->dim, INIT_NORMAL, residual_std);
        add(b, "ln_1.weight", c->dim, 0, INIT_ONES, 0);
        add(b, "ln_1.bias", c->dim, 0, INIT_ZEROS, 0);
        add(b, "attn.c_attn.bias", 3 * c->dim, 0, INIT_ZEROS, 0);
        add(b, "attn.c_proj.bias", c->dim, 0, INIT_ZEROS, 0);
        add(b, "ln_2.weight", c->dim, 0, INIT_ONES, 0);
        add(b, "ln_2.bias", c->dim, 0, INIT_ZEROS, 0);
        add(b, "mlp.c_fc.bias", c->ffn, 0, INIT_ZEROS, 0);
        add(b, "mlp.c_proj.bias", c->dim, 0, INIT_ZEROS, 0);
        end_unit(b);
    }
    begin_unit(b, 1 + (int)c->layers, "", 0);
    if (!c->tied)
        add(b, "lm_head.weight", c->vocab, c->dim, INIT_NORMAL, std);
    add(b, "transformer.ln_f.weight", c->dim, 0, INIT_ONES, 0);
    add(b, "transformer.ln_f.bias", c->dim, 0, INIT_ZEROS, 0);
    end_unit(b);
}

/* ---- what is trained, and the order in the unit ---- */

static enum status apply_freeze(struct model *m, const char *const *freeze, int n_freeze)
{
    for (int g = 0; g < n_freeze; g++) {
        int matches = 0;
        for (int i = 0; i < m->n_params; i++)
            if (fnmatch(freeze[g], m->params[i].name, 0) == 0) {
                m->params[i].trained = 0;
                matches++;
            }
        if (matches == 0)
            return status_fail(ERR_INVALID, "--freeze: '%s' matches no parameter; names look like %s", freeze[g],
                               m->params[m->units[1].first_param].name);
    }
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].trained)
            return OK;
    return status_fail(ERR_INVALID, "--freeze: every parameter is frozen; leave some to train");
}

/* 0 trained matrix, 1 trained vector, 2 and 3 the same frozen. */
static int group(const struct model_param *p)
{
    return (p->trained ? 0 : 2) + (p->shape[1] ? 0 : 1);
}

static void order_unit(struct model *m, struct model_unit *u)
{
    struct model_param *p = m->params + u->first_param, declared[MAX_UNIT_PARAMS];
    memcpy(declared, p, sizeof *p * (size_t)u->n_params);
    int n = 0;
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < u->n_params; i++)
            if (group(&declared[i]) == g)
                p[n++] = declared[i];
    for (int i = 0; i < n; i++) {
        p[i].offset = u->elements;
        u->elements += p[i].elements;
        if (group(&p[i]) == 0)
            u->decay_elements = u->elements;
        if (p[i].trained)
            u->trained_elements = u->elements;
    }
}

/* ---- what layers use ---- */

/* The unit's parameter whose name ends in `suffix`. */
static int find(const struct model *m, int unit, const char *suffix)
{
    const struct model_unit *u = &m->units[unit];
    size_t len = strlen(suffix);
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        size_t n = strlen(m->params[i].name);
        if (n >= len && strcmp(m->params[i].name + n - len, suffix) == 0)
            return i;
    }
    return -1;
}

/* name: ".q_proj" */
static struct model_linear linear_llama(const struct model *m, int unit, const char *name)
{
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    int w = find(m, unit, weight);
    const struct model_param *p = &m->params[w];
    return (struct model_linear){
        .weight = w, .bias = find(m, unit, bias), .transposed = 1, .in = p->shape[1], .out = p->shape[0], .ld = p->shape[1]};
}

static struct model_linear linear_gpt2(const struct model *m, int unit, const char *weight, const char *bias)
{
    int w = find(m, unit, weight);
    const struct model_param *p = &m->params[w];
    return (struct model_linear){
        .weight = w, .bias = find(m, unit, bias), .in = p->shape[0], .out = p->shape[1], .ld = p->shape[1]};
}

static void connect_llama(struct model *m)
{
    for (int l = 0; l < m->config.layers; l++) {
        struct model_layer *y = &m->layers[l];
        int u = 1 + l;
        y->norm1 = (struct model_norm){find(m, u, ".input_layernorm.weight"), -1};
        y->norm2 = (struct model_norm){find(m, u, ".post_attention_layernorm.weight"), -1};
        y->q = linear_llama(m, u, ".q_proj");
        y->k = linear_llama(m, u, ".k_proj");
        y->v = linear_llama(m, u, ".v_proj");
        y->o = linear_llama(m, u, ".o_proj");
        y->gate = linear_llama(m, u, ".gate_proj");
        y->up = linear_llama(m, u, ".up_proj");
        y->down = linear_llama(m, u, ".down_proj");
    }
    m->embed = find(m, 0, "embed_tokens.weight");
    m->pos_embed = -1;
    m->final_norm = (struct model_norm){find(m, m->n_units - 1, "model.norm.weight"), -1};
}

static void connect_gpt2(struct model *m)
{
    for (int l = 0; l < m->config.layers; l++) {
        struct model_layer *y = &m->layers[l];
        int u = 1 + l;
        y->norm1 = (struct model_norm){find(m, u, ".ln_1.weight"), find(m, u, ".ln_1.bias")};
        y->norm2 = (struct model_norm){find(m, u, ".ln_2.weight"), find(m, u, ".ln_2.bias")};
        y->q = linear_gpt2(m, u, ".c_attn.weight", ".c_attn.bias");
        y->q.out = m->config.dim;
        y->k = y->v = y->q;
        y->k.first_out = m->config.dim;
        y->v.first_out = 2 * m->config.dim;
        y->o = linear_gpt2(m, u, ".attn.c_proj.weight", ".attn.c_proj.bias");
        y->gate = (struct model_linear){.weight = -1, .bias = -1};
        y->up = linear_gpt2(m, u, ".c_fc.weight", ".c_fc.bias");
        y->down = linear_gpt2(m, u, ".mlp.c_proj.weight", ".mlp.c_proj.bias");
    }
    m->embed = find(m, 0, ".wte.weight");
    m->pos_embed = find(m, 0, ".wpe.weight");
    m->final_norm = (struct model_norm){find(m, m->n_units - 1, ".ln_f.weight"), find(m, m->n_units - 1, ".ln_f.bias")};
}

static void connect_head(struct model *m)
{
    const struct model_config *c = &m->config;
    int w = c->tied ? m->embed : find(m, m->n_units - 1, "lm_head.weight");
    m->head = (struct model_linear){.weight = w, .bias = -1, .transposed = 1, .in = c->dim, .out = c->vocab, .ld = c->dim};
}

/* ---- entry ---- */

static enum status check_range(const char *what, int64_t value, int64_t limit)
{
    if (value < 1 || value > limit)
        return status_fail(ERR_INVALID, "model: %s is %lld, must be 1 to %lld", what, (long long)value, (long long)limit);
    return OK;
}

/* The limits keep every product below 2^62. */
static enum status check_config(const struct model_config *c)
{
    TRY(check_range("vocabulary size", c->vocab, 1 << 24));
    TRY(check_range("hidden size", c->dim, 1 << 20));
    TRY(check_range("feed-forward size", c->ffn, 1 << 24));
    TRY(check_range("number of layers", c->layers, 1 << 12));
    TRY(check_range("number of heads", c->heads, 1 << 14));
    TRY(check_range("number of key-value heads", c->kv_heads, c->heads));
    TRY(check_range("head size", c->head_dim, 1 << 12));
    TRY(check_range("number of positions", c->max_positions, INT32_MAX));
    if (c->window)
        TRY(check_range("sliding window", c->window, INT32_MAX));
    if (c->heads % c->kv_heads)
        return status_fail(ERR_INVALID, "model: %lld heads cannot be shared by %lld key-value heads, must be a multiple",
                           (long long)c->heads, (long long)c->kv_heads);
    if (c->family == FAMILY_LLAMA && c->head_dim % 2)
        return status_fail(ERR_INVALID, "model: head size is %lld, must be even for rotary positions", (long long)c->head_dim);
    if (c->family == FAMILY_GPT2 && (c->heads * c->head_dim != c->dim || c->kv_heads != c->heads))
        return status_fail(
            ERR_INVALID,
            "model: GPT-2 with hidden size %lld needs heads x head size of the same, not %lld x %lld (%lld key-value heads)",
            (long long)c->dim, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads);
    return OK;
}

static void sum_params(struct model *m)
{
    for (int i = 0; i < m->n_params; i++)
        m->total_params += model_param_stored(&m->params[i]);
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].shape[1] && m->params[i].unit > 0 && m->params[i].unit < m->n_units - 1)
            m->matrix_params += m->params[i].elements;
    m->matrix_params += m->config.vocab * m->config.dim;
}

/* One block: the struct, then units, parameters and layers. */
static enum status allocate(const struct model_config *config, struct model **out)
{
    size_t layers = (size_t)config->layers, units = layers + 2;
    size_t params = layers * (config->family == FAMILY_LLAMA ? LLAMA_LAYER_PARAMS : GPT2_LAYER_PARAMS) + OTHER_PARAMS;
    size_t bytes = sizeof(struct model) + units * sizeof(struct model_unit) + params * sizeof(struct model_param) +
                   layers * sizeof(struct model_layer);
    struct model *m = sys_calloc(1, bytes);
    if (!m)
        return status_fail(ERR_NOMEM, "out of memory: %zu bytes for the model's description", bytes);
    m->config = *config;
    m->n_units = (int)units;
    m->units = (struct model_unit *)(m + 1);
    m->params = (struct model_param *)(m->units + units);
    m->layers = (struct model_layer *)(m->params + params);
    *out = m;
    return OK;
}

enum status model_create(const struct model_config *config, const char *const *freeze, int n_freeze, struct model **out)
{
    struct model *m = NULL;
    enum status st;
    TRY(check_config(config));
    TRY(allocate(config, &m));
    struct builder b = {.m = m};
    if (config->family == FAMILY_LLAMA)
        declare_llama(&b);
    else
        declare_gpt2(&b);
    TRY_GOTO(apply_freeze(m, freeze, n_freeze), fail);
    for (int u = 0; u < m->n_units; u++)
        order_unit(m, &m->units[u]);
    if (config->family == FAMILY_LLAMA)
        connect_llama(m);
    else
        connect_gpt2(m);
    connect_head(m);
    sum_params(m);
    *out = m;
    return OK;
fail:
    model_destroy(m);
    return st;
}

enum status model_create_for(const struct model *m, int64_t tokens, const char *const *freeze, int n_freeze, struct model **out)
{
    struct model_config c = m->config;
    c.positions = tokens;
    return model_create(&c, freeze, n_freeze, out);
}

void model_destroy(struct model *m)
{
    free(m);
}

int64_t model_param_stored(const struct model_param *p)
{
    return p->shape[1] ? p->shape[0] * p->shape[1] : p->shape[0];
}

const char *model_param_alias(const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0)
            return name + n;
    }
    return NULL;
}
