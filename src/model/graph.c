/* Building the graph from a configuration: parameters by unit, with order and offsets, and how each layer uses them. */
#include "model/family/experts.h"
#include "model/family/family.h"

#include "base/sys.h"
#include "model/graph.h"
#include "model/kinds.h"
#include "model/skipped.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- units ---- */

static void begin_unit(struct builder *b, int unit)
{
    b->unit = unit;
    b->prefix[0] = 0;
    if (b->pass == DECLARE)
        b->m->units[unit].first_param = b->n_params;
}

static void end_unit(struct builder *b)
{
    struct model_unit *u = &b->m->units[b->unit];
    if (b->pass == DECLARE)
        u->n_params = b->n_params - u->first_param;
}

/* ---- the family's description, unit by unit ---- */

/* Runs one pass over the family's description; returns the number of parameters (0 in the pass CONNECT). */
static int describe(struct model *m, const struct adapter_rules *rules, enum build_pass pass)
{
    const struct family *f = family_of(&m->config);
    struct builder b = {.m = m,
                        .pass = pass,
                        .head_name = family_head_name(&m->config),
                        .head_bias = f->head_bias,
                        .root = f->root,
                        .unadapted = f->unadapted,
                        .renamings = f->renamings,
                        .rules = rules,
                        .experts = f->experts};
    m->pos_embed = m->embed_rows = m->head_rows = -1;
    begin_unit(&b, MODEL_EMBEDDING_UNIT);
    f->embedding(&b);
    end_unit(&b);
    for (int l = 0; l < (int)m->config.layers; l++) {
        m->layers[l].n_blocks = 0;
        m->layers[l].scalar = -1;
        begin_unit(&b, model_unit_of_layer(l));
        f->layer(&b, l);
        end_unit(&b);
    }
    begin_unit(&b, model_head_unit(m));
    f->head(&b);
    end_unit(&b);
    for (int unit = model_head_unit(m) + 1; unit < m->n_units; unit++) {
        begin_unit(&b, unit);
        (m->units[unit].fp32 ? experts_router : experts_stacks)(&b, m->units[unit].layer);
        end_unit(&b);
    }
    return b.n_params;
}

/* ---- freezing parameters, and their order in the unit ---- */

static int is_matrix(const struct model_param *p)
{
    return p->shape[1] && !p->as_vector;
}

static const struct model_param *first_matrix(const struct model *m, int unit)
{
    const struct model_param *p = &m->params[m->units[unit].first_param];
    while (!is_matrix(p))
        p++;
    return p;
}

/* Freezes the base if there are adapters, except parameters saved with them. Constants are always frozen. */
static void freeze_base(struct model *m, const struct adapter_rules *rules)
{
    for (int i = 0; i < m->n_params && rules; i++)
        m->params[i].trained = m->params[i].from_adapter = m->params[i].adapter || adapter_saves(rules, m->params[i].name);
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].constant)
            m->params[i].trained = m->params[i].from_adapter = 0;
}

static enum status apply_freeze(struct model *m, const char *const *freeze, int n_freeze)
{
    const int everything = n_freeze == 1 && strcmp(freeze[0], MODEL_FREEZE_ALL) == 0;
    for (int g = 0; g < n_freeze; g++) {
        int matches = 0;
        for (int i = 0; i < m->n_params; i++)
            if (fnmatch(freeze[g], m->params[i].name, 0) == 0) {
                m->params[i].trained = 0;
                matches++;
            }
        if (matches == 0 && !m->config.stands_in)
            return status_fail(ERR_INVALID, "--freeze: '%s' matches no parameter; names look like %s", freeze[g],
                               first_matrix(m, model_unit_of_layer(0))->name);
    }
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].trained)
            return OK;
    if (everything || m->config.stands_in ||
        (m->config.lora.rank > 0 && n_freeze == 0)) /* model_check_adapters reports adapters that match nothing */
        return OK;
    return status_fail(ERR_INVALID, "--freeze: every parameter is frozen; leave some to train");
}

const char *model_base_name(enum model_base base)
{
    static const char *const names[] = {"", "NF4", "NF4", "int8", "MXFP4"};
    return names[base];
}

const char *model_base_word(enum model_base base)
{
    static const char *const words[] = {"", "nf4", "nf4", "int8", "mxfp4"};
    return words[base];
}

/* Tells whether the parameter is quantised: a stack of experts or, but in MXFP4, a map that transformers' Linear4bit and Linear8bitLt
 * replace. */
static int is_packed(const struct model *m, const struct skipped *skipped, const struct model_param *p)
{
    char module[sizeof p->name];
    const int may = model_param_is_stack(p) || (p->linear && m->config.base != BASE_MXFP4);
    if (m->config.base == BASE_STORED || !may || p->trained || p->from_adapter)
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)(strrchr(p->name, '.') - p->name), p->name);
    return !skipped_has(skipped, module);
}

/* Refuses a quantised head that is not tied: if the file lists skipped modules, the head must be among them. */
static enum status check_head(const struct model *m, const struct skipped *skipped)
{
    char head[sizeof m->params->name];
    model_head_name(&m->config, head);
    head[strlen(head) - strlen(".weight")] = 0;
    if (!m->config.lists_skipped || m->config.tied || skipped_has(skipped, head))
        return OK;
    return status_fail(
        ERR_INVALID,
        "config.json: llm_int8_skip_modules lists modules that are not quantised and not %s, so transformers quantises the head, too, which is "
        "not done here: give a copy that is not quantised",
        head);
}

/* Most maps of an interleaved matrix that is quantised: queries and their gates, of which products read whole heads. Qwen3-Next's are
 * of four, each a product of its own. */
enum { INTERLEAVED_MOST = 2 };

/* Turns the layers' frozen matrices into quantised bytes. */
static enum status pack_matrices(struct model *m, const struct skipped *skipped)
{
    TRY(check_head(m, skipped));
    for (int i = 0; i < m->n_params; i++) {
        struct model_param *p = &m->params[i];
        if (!is_packed(m, skipped, p))
            continue;
        if ((p->parts > INTERLEAVED_MOST && m->config.family != FAMILY_QWEN3_NEXT) || m->config.family == FAMILY_GPT2)
            return status_fail(
                ERR_INVALID,
                "--base %s: %s lies in files in another order than in its products, and bitsandbytes' scales follow "
                "that: such models are not quantised",
                model_base_word(m->config.base), p->name);
        const struct quantised q = model_quantised(&m->config, p);
        p->packed_bytes = model_param_matrices(p) * quantised_bytes(&q);
        p->elements = 0;
    }
    return OK;
}

static enum status pack_base(struct model *m)
{
    struct skipped *skipped;
    TRY(skipped_create(m->config.skipped, &skipped));
    enum status st = pack_matrices(m, skipped);
    skipped_destroy(skipped);
    return st;
}

enum { DECAYED, TRAINED, FROZEN, QUANTISED };

static int class_of(const struct model_param *p)
{
    return p->packed_bytes > 0 ? QUANTISED : !p->trained ? FROZEN : is_matrix(p) ? DECAYED : TRAINED;
}

/* Returns the order of a parameter in its unit: by class, those that slices divide before others; frozen matrices before frozen
 * vectors. */
static int group(const struct model_param *p)
{
    return 4 * class_of(p) + 2 * (p->n_ranges == 0) + !is_matrix(p);
}

/* Sorts the parameters of a unit by group and sets their offsets. The sort is stable: within a group they stay in the order of
 * declaration. */
static void order_unit(struct model *m, struct model_unit *u)
{
    struct model_param *p = m->params + u->first_param;
    u->elements = u->trained_elements = u->decay_elements = u->packed_bytes = 0;
    memset(u->sliced, 0, sizeof u->sliced);
    for (int i = 1; i < u->n_params; i++) {
        struct model_param moved = p[i];
        int to = i;
        for (; to > 0 && group(&p[to - 1]) > group(&moved); to--)
            p[to] = p[to - 1];
        p[to] = moved;
    }
    for (int i = 0; i < u->n_params; i++) {
        p[i].offset = u->elements;
        p[i].packed_offset = u->packed_bytes;
        u->elements += p[i].elements;
        u->packed_bytes += p[i].packed_bytes;
        if (class_of(&p[i]) == DECAYED)
            u->decay_elements = u->elements;
        if (class_of(&p[i]) < QUANTISED && p[i].n_ranges > 0)
            u->sliced[class_of(&p[i])] += p[i].elements;
        if (p[i].trained)
            u->trained_elements = u->elements;
    }
}

void graph_order(struct model *m)
{
    for (int u = 0; u < m->n_units; u++)
        order_unit(m, &m->units[u]);
}

/* Refuses a convolution whose weights are several parameters that do not lie one behind another, since some are frozen. */
static enum status check_convs(const struct model *m)
{
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_block *b = model_find_block(&m->layers[m->kinds[k].first], BLOCK_RECURRENT);
        int64_t n = 0;
        for (int i = 0; b && b->recurrent.conv >= 0 && i < b->recurrent.convs; i++)
            n += m->params[b->recurrent.conv + i].conv ? m->params[b->recurrent.conv + i].elements : 0;
        if (b && b->recurrent.conv >= 0 && n != b->recurrent.channels * b->recurrent.width)
            return status_fail(ERR_INVALID,
                               "--freeze: %s is a part of a convolution with others of its layer: freeze all or none of these",
                               m->params[b->recurrent.conv].name);
    }
    return OK;
}

/* ---- entry ---- */

enum { MOST_HEAD_DIM = 512 }; /* limit of the attention kernels */

static enum status check_heads(const struct model_config *c, const struct attention_shape *s)
{
    const int64_t rotated = model_rotated(c, s->rotated);
    if (s->kv_heads > s->heads)
        return status_fail(ERR_INVALID, "model: number of key-value heads is %lld, must be 1 to %lld", (long long)s->kv_heads,
                           (long long)s->heads);
    if (s->heads % s->kv_heads)
        return status_fail(ERR_INVALID, "model: %lld heads cannot be shared by %lld key-value heads, must be a multiple",
                           (long long)s->heads, (long long)s->kv_heads);
    if (max_i64(s->head_dim, s->value_dim) > MOST_HEAD_DIM)
        return status_fail(ERR_INVALID, "model: head size is %lld, and attention takes at most %d",
                           (long long)max_i64(s->head_dim, s->value_dim), MOST_HEAD_DIM);
    if (s->kv_latent > 0 && s->kv_heads != s->heads)
        return status_fail(ERR_INVALID, "model: latent attention with %lld heads has %lld key-value heads, must have as many",
                           (long long)s->heads, (long long)s->kv_heads);
    if (!family_of(c)->learned_positions && (rotated < 2 || rotated % 2))
        return status_fail(ERR_INVALID, "model: head size is %lld, must be even for rotary positions%s", (long long)s->head_dim,
                           rotated < s->head_dim ? ", and so must the part that is rotated" : "");
    if (c->rope == ROPE_LONGROPE && s->head_dim != c->head_dim)
        return status_fail(ERR_INVALID, "model: longrope's factors are of heads of %lld, and a layer has heads of %lld",
                           (long long)c->head_dim, (long long)s->head_dim);
    return OK;
}

/* Checks the configuration; the limits keep every product below 2^62. */
static enum status check_config(const struct model_config *c)
{
    TRY(config_check_limits(c));
    for (int64_t l = 0; l < c->layers; l++) {
        const struct attention_shape shape = config_shape(c, l);
        TRY(check_heads(c, &shape));
    }
    if (c->experts > 0)
        TRY(experts_check(c));
    return family_of(c)->check(c);
}

int model_multiplies_tokens(const struct model *m, int param)
{
    const struct model_param *p = &m->params[param];
    const int looked_up =
        (m->embedding.rank > 0 && param == m->embedding.down) || (param == m->embed_rows && param != m->head_rows);
    return is_matrix(p) && (model_unit_in_layer(m, p->unit) || param == m->head.weight || (p->adapter && !looked_up));
}

void graph_sum(struct model *m)
{
    m->total_params = m->adapter_params = m->trained_params = m->trained_matrix_params = m->packed_params = m->matrix_params =
        m->active_params = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        const int64_t n = model_param_stored(p), active = model_param_active(m, p),
                      multiplied = model_multiplies_tokens(m, i) ? active : 0;
        m->total_params += n;
        m->adapter_params += p->adapter ? n : 0;
        m->trained_params += p->trained ? n : 0;
        m->packed_params += p->packed_bytes > 0 ? n : 0;
        m->active_params += active;
        m->matrix_params += multiplied;
        m->trained_matrix_params += p->trained ? multiplied : 0;
    }
}

static enum status no_memory(size_t bytes)
{
    return status_fail(ERR_NOMEM, "out of memory: %zu bytes for the model's description", bytes);
}

/* Allocates one block for the struct, the units and the layers. Parameters are allocated once they have been counted. */
enum status graph_allocate(const struct model_config *config, int64_t layers, int units, struct model **out)
{
    size_t bytes = sizeof(struct model) + (size_t)units * sizeof(struct model_unit) + (size_t)layers * sizeof(struct model_layer);
    struct model *m = sys_calloc(1, bytes);
    if (!m)
        return no_memory(bytes);
    m->config = *config;
    m->n_units = units;
    m->units = (struct model_unit *)(m + 1);
    m->layers = (struct model_layer *)(m->units + units);
    *out = m;
    return OK;
}

static int count_units(const struct model_config *c)
{
    int units = (int)c->layers + 2;
    for (int64_t l = 0; l < c->layers; l++)
        units += EXPERT_UNITS * experts_has(c, l);
    return units;
}

/* Sets each unit's layer. The embedding's unit comes first, then one for each layer, the head's, and two for each layer with experts:
 * the router's and the stacks'. */
static void number_units(struct model *m)
{
    const int head = model_head_unit(m);
    for (int u = 0; u <= head; u++)
        m->units[u].layer = u - model_unit_of_layer(0);
    for (int l = 0, unit = head + 1; l < (int)m->config.layers; l++)
        if (experts_has(&m->config, l)) {
            m->units[unit].fp32 = 1;
            m->units[unit].layer = m->units[unit + 1].layer = l;
            unit += EXPERT_UNITS;
        }
}

static enum status declare_params(struct model *m, const struct adapter_rules *rules)
{
    m->n_params = describe(m, rules, COUNT);
    TRY(kinds_list_attention(m, !family_of(&m->config)->learned_positions));
    m->params = sys_calloc((size_t)m->n_params, sizeof *m->params);
    if (!m->params)
        return no_memory((size_t)m->n_params * sizeof *m->params);
    describe(m, rules, DECLARE);
    return OK;
}

/* Sets up a whole model as a part that contains everything. */
static void number_params(struct model *m)
{
    m->whole = m;
    m->part = (struct model_part){0, m->config.layers, 0, 1};
    for (int i = 0; i < m->n_params; i++) {
        m->params[i].whole = i;
        memcpy(m->params[i].file_shape, m->params[i].shape, sizeof m->params[i].shape);
    }
}

/* Refuses files of models with experts in bitsandbytes' formats, which leave fused stacks alone and quantise single experts. */
static enum status check_base(const struct model_config *c)
{
    if (!c->quantised || c->experts == 0 || c->base == BASE_STORED || c->base == BASE_MXFP4)
        return OK;
    return status_fail(
        ERR_INVALID,
        "config.json: files of models with experts are not read in bitsandbytes' %s: give a copy that is not quantised, "
        "with --base %s",
        model_base_name(c->base), model_base_word(c->base));
}

enum status model_create(const struct model_config *config, const char *const *freeze, int n_freeze, struct model **out)
{
    struct model *m = NULL;
    struct adapter_rules *rules = NULL;
    enum status st;
    TRY(check_config(config));
    TRY(check_base(config));
    TRY(graph_allocate(config, config->layers, count_units(config), &m));
    number_units(m);
    if (m->config.lora.rank > 0)
        TRY_GOTO(adapter_rules_create(&m->config.lora, &rules), fail);
    TRY_GOTO(declare_params(m, rules), fail);
    freeze_base(m, rules);
    TRY_GOTO(apply_freeze(m, freeze, n_freeze), fail);
    TRY_GOTO(pack_base(m), fail);
    graph_order(m);
    number_params(m);
    describe(m, rules, CONNECT);
    TRY_GOTO(kinds_list(m), fail);
    TRY_GOTO(check_convs(m), fail);
    graph_sum(m);
    adapter_rules_destroy(rules);
    *out = m;
    return OK;
fail:
    adapter_rules_destroy(rules);
    model_destroy(m);
    return st;
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    model_destroy(m->kept);
    free(m->params);
    free(m);
}

void model_wrapped_name(const char *name, enum wrapping wrapping, char out[WRAPPED_NAME])
{
    static const char model[] = "model.";
    int head = strncmp(name, model, strlen(model)) != 0;
    if (wrapping == WRAPPING_OLD)
        snprintf(out, WRAPPED_NAME, "language_model.%s", name);
    else
        snprintf(out, WRAPPED_NAME, "%s%s", head ? "" : "model.language_model.", head ? name : name + strlen(model));
}

/* Writes the name with other words in place of some. Returns 0 if the name lacks them, from_start: if it does not begin with them. */
static int replace_words(const char *name, const char *words, const char *others, int from_start, char out[WRAPPED_NAME])
{
    const char *at = strstr(name, words);
    if (!at || (from_start && at != name))
        return 0;
    snprintf(out, WRAPPED_NAME, "%.*s%s%s", (int)(at - name), name, others, at + strlen(words));
    return 1;
}

int model_other_name(const char *name, int i, char out[WRAPPED_NAME])
{
    static const struct {
        const char *words, *others;
        int from_start;
    } spellings[] = {{"transformer.", "", 1},
                     {"model.", "", 1},
                     {"gpt_neox.", "", 1},
                     {"model.", "backbone.", 1},
                     {".mlp.", ".block_sparse_moe.", 0},
                     {".post_attention_layernorm.", ".feedforward_layer_norm.", 0}};
    const int n = (int)(sizeof spellings / sizeof *spellings);
    if (i >= n + WRAPPINGS)
        return -1;
    if (i < n)
        return replace_words(name, spellings[i].words, spellings[i].others, spellings[i].from_start, out);
    model_wrapped_name(name, (enum wrapping)(i - n), out);
    return 1;
}

int model_is_wrapped_name(const char *name)
{
    static const char *const prefixes[] = {"language_model.", "model.language_model.", "lm_head."};
    for (int i = 0; i < 3; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

void model_head_name(const struct model_config *config, char name[32])
{
    snprintf(name, 32, "%s.weight", family_head_name(config));
}

int model_is_buffer(const struct model_config *config, const char *name)
{
    for (const char *const *glob = family_of(config)->buffers; *glob; glob++)
        if (fnmatch(*glob, name, 0) == 0)
            return 1;
    return 0;
}
