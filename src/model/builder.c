/* Declaring a model's parameters and connecting the blocks that use them, pass by pass. */
#include "model/builder.h"

#include "base/rng.h"
#include "model/kinds.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void build_prefix(struct builder *b, const char *prefix)
{
    snprintf(b->prefix, sizeof b->prefix, "%s", prefix);
}

void build_layer_prefix(struct builder *b, const char *layers, int l)
{
    snprintf(b->prefix, sizeof b->prefix, "%s%lld.", layers, (long long)(b->m->config.first_number + l));
}

/* Returns the index of the unit's parameter called `name`. */
static int find(const struct builder *b, const char *name)
{
    const struct model_unit *u = &b->m->units[b->unit];
    int i = u->first_param;
    while (i < u->first_param + u->n_params && strcmp(b->m->params[i].name, name) != 0)
        i++;
    assert(i < u->first_param + u->n_params);
    return i;
}

/* Declares a parameter, or finds it in pass CONNECT. columns 0: a vector. */
static int build_param(struct builder *b, const char *name, const char *what, int64_t rows, int64_t columns, enum param_init init,
                       double std)
{
    struct model_param p = {.unit = b->unit, .trained = 1, .init = init, .init_std = (float)std};
    snprintf(p.name, sizeof p.name, "%s%s%s", b->prefix, name, what);
    p.shape[0] = rows;
    p.shape[1] = columns;
    p.elements = columns ? rows * columns : rows;
    if (b->pass == CONNECT)
        return find(b, p.name);
    if (strncmp(p.name, "model.", 6) == 0)
        p.root = b->root;
    for (const struct param_renaming *r = b->renamings; r && r->here && !p.renamed; r++)
        p.renamed = strstr(p.name, r->here) ? r : NULL;
    if (b->pass == DECLARE)
        b->m->params[b->n_params] = p;
    return b->n_params++;
}

int build_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std)
{
    return build_param(b, name, ".weight", rows, columns, INIT_NORMAL, std);
}

int build_vector(struct builder *b, const char *name, int64_t n, double std)
{
    return build_param(b, name, "", n, 0, INIT_NORMAL, std);
}

int build_vector_of(struct builder *b, const char *name, int64_t n, enum param_init init)
{
    return build_param(b, name, "", n, 0, init, 0);
}

int build_vector_of_heads(struct builder *b, const char *name, int64_t heads, enum param_init init)
{
    int i = build_param(b, name, "", heads, 0, init, 0);
    if (b->pass == DECLARE)
        b->m->params[i].of_heads = 1;
    return i;
}

int build_conv(struct builder *b, const char *name, int64_t channels, int64_t width, double std)
{
    int i = build_param(b, name, ".weight", channels, width, INIT_NORMAL, std);
    if (b->pass == DECLARE)
        b->m->params[i].as_vector = b->m->params[i].conv = 1;
    return i;
}

int build_constant(struct builder *b, const char *name)
{
    int i = build_param(b, name, "", 1, 0, INIT_ONES, 0);
    if (b->pass == DECLARE)
        b->m->params[i].constant = 1;
    return i;
}

void build_use_rows(struct builder *b, int64_t rows)
{
    if (b->pass != DECLARE || rows == 0)
        return;
    struct model_param *p = &b->m->params[b->n_params - 1];
    p->elements = min_i64(rows, p->shape[0]) * p->shape[1];
}

struct model_norm build_norm(struct builder *b, const char *name, enum norm_kind kind)
{
    return build_norm_of(b, name, kind, b->m->config.dim);
}

struct model_norm build_norm_of(struct builder *b, const char *name, enum norm_kind kind, int64_t dim)
{
    struct model_norm n = {.kind = kind, .bias = -1};
    n.weight =
        build_param(b, name, ".weight", dim, 0, kind == NORM_RMS_ONE || kind == NORM_LAYER_ONE ? INIT_ZEROS : INIT_ONES, 0);
    if (kind == NORM_LAYER || kind == NORM_LAYER_ONE)
        n.bias = build_param(b, name, ".bias", dim, 0, INIT_ZEROS, 0);
    return n;
}

struct model_norm build_norm_of_heads(struct builder *b, const char *name, int64_t heads, int64_t head_dim)
{
    struct model_norm n = {.kind = NORM_LAYER, .bias = -1};
    n.weight = build_param(b, name, ".weight", heads, head_dim, INIT_ONES, 0);
    if (b->pass == DECLARE)
        b->m->params[n.weight].as_vector = 1;
    return n;
}

static struct model_norm no_norm(void)
{
    return (struct model_norm){.kind = NORM_NONE, .weight = -1, .bias = -1};
}

struct model_norm build_bare_norm(void)
{
    return (struct model_norm){.kind = NORM_RMS, .weight = -1, .bias = -1};
}

static int build_adapter_matrix(struct builder *b, const char *name, const char *what, int64_t rows, int64_t columns,
                                enum param_init init, double std)
{
    int i = build_param(b, name, what, rows, columns, init, std);
    if (b->pass == DECLARE) {
        b->m->params[i].adapter = 1;
        b->m->params[i].root = NULL;
        b->m->params[i].renamed = NULL;
    }
    return i;
}

/* Tells whether the map is one that PEFT gives no adapter in this family. */
static int is_unadapted(const struct builder *b, const char *name)
{
    const char *none = b->unadapted;
    const size_t n = strlen(name), most = none ? strlen(none) : 0;
    return none && n > most && name[n - most - 1] == '.' && strcmp(name + n - most, none) == 0;
}

/* Sets up a map's adapter and returns its rank (0: no adapter). Head, embedding and routers have one only if targets name them. */
static int64_t begin_adapter(struct builder *b, const char *name, struct model_linear *w)
{
    char module[96];
    snprintf(module, sizeof module, "%s%s", b->prefix, name);
    const int if_named = !model_unit_in_layer(b->m, b->unit) || b->m->units[b->unit].fp32;
    if (!b->rules || (if_named && !adapter_is_named(b->rules, module)))
        return 0;
    w->rank = adapter_rank(b->rules, module);
    if (w->rank > 0 && is_unadapted(b, name)) {
        b->m->refused_target = adapter_is_named(b->rules, module) ? b->unadapted : NULL;
        w->rank = 0;
    }
    if (w->rank == 0)
        return 0;
    w->adapter_scale = adapter_scale(b->rules, module);
    w->dropout_module = (uint32_t)rng_stream(module);
    b->m->most_rank = max_i64(b->m->most_rank, w->rank);
    return w->rank;
}

void build_adapter(struct builder *b, const char *name, struct model_linear *w)
{
    if (begin_adapter(b, name, w) == 0)
        return;
    w->down = build_adapter_matrix(b, name, ".lora_A.weight", w->rank, w->in, INIT_UNIFORM, 1.0 / sqrt((double)w->in));
    w->up = build_adapter_matrix(b, name, ".lora_B.weight", w->out, w->rank, INIT_ZEROS, 0);
}

/* Declares rows of a matrix that are trained by themselves, named as PEFT's. Returns -1 if there are none of the module. */
static int build_rows(struct builder *b, const char *name, int64_t columns, int is_embedding)
{
    const struct lora *l = &b->m->config.lora;
    struct lora_tokens x = {.first = 0};
    char module[96];
    int64_t n = 0;
    snprintf(module, sizeof module, "%s%s", b->prefix, name);
    for (const char *at = l->tokens; b->rules && !l->tokens_put && lora_next_tokens(&at, &x);)
        if (x.module[0] ? adapter_targeted_by(x.module, module) : is_embedding)
            n += x.end - x.first;
    return n > 0 ? build_adapter_matrix(b, name, TOKEN_ROWS_TENSOR, n, columns, INIT_NORMAL, 0) : -1;
}

/* Declares the embedding. Its adapter's A begins as zeros and B as normal numbers, as in PEFT. */
int build_embedding(struct builder *b, const char *name, int64_t rows, int64_t columns, double std)
{
    struct model_linear w = {
        .weight = build_matrix(b, name, rows, columns, std), .bias = -1, .in = rows, .out = columns, .ld = columns};
    if (begin_adapter(b, name, &w) > 0) {
        w.down = build_adapter_matrix(b, name, ".lora_embedding_A", w.rank, rows, INIT_ZEROS, 0);
        w.up = build_adapter_matrix(b, name, ".lora_embedding_B", columns, w.rank, INIT_NORMAL, 1);
    }
    b->m->embedding = w;
    b->m->embed_rows = b->m->head_rows = build_rows(b, name, columns, 1);
    return w.weight;
}

struct model_linear build_linear(struct builder *b, const char *name, int64_t in, int64_t out, unsigned form, double std)
{
    int in_out = (form & LINEAR_IN_OUT) != 0;
    struct model_linear w = {.bias = -1, .transposed = !in_out, .in = in, .out = out, .ld = in_out ? out : in};
    w.weight = build_matrix(b, name, in_out ? in : out, w.ld, std);
    if (b->pass == DECLARE)
        b->m->params[w.weight].linear = model_unit_in_layer(b->m, b->unit);
    if (form & LINEAR_BIAS)
        w.bias = build_param(b, name, ".bias", out, 0, INIT_ZEROS, 0);
    build_adapter(b, name, &w);
    return w;
}

static void interleave(struct builder *b, int param, int parts, const int64_t *rows)
{
    if (b->pass != DECLARE || param < 0)
        return;
    b->m->params[param].parts = parts;
    memcpy(b->m->params[param].part_rows, rows, (size_t)parts * sizeof *rows);
}

struct model_linear build_interleaved(struct builder *b, const char *name, int64_t in, int64_t out, int parts,
                                      const int64_t *rows, unsigned form, double std)
{
    struct model_linear w = build_linear(b, name, in, out, form, std);
    interleave(b, w.weight, parts, rows);
    interleave(b, w.bias, parts, rows);
    interleave(b, w.rank > 0 ? w.up : -1, parts, rows);
    return w;
}

struct model_linear build_slice(const struct model_linear *fused, int64_t first, int64_t out)
{
    struct model_linear w = *fused;
    w.first_out = first;
    w.out = out;
    return w;
}

struct model_linear build_no_linear(void)
{
    return (struct model_linear){.weight = -1, .bias = -1};
}

/* Declares a matrix, or (columns 0) a vector, that is a stack of `experts` of `rows` rows each. */
static int build_stacked(struct builder *b, const char *name, const char *what, int64_t experts, int64_t rows, int64_t columns,
                         enum param_init init, double std)
{
    int i = build_param(b, name, what, experts * rows, columns, init, std);
    if (b->pass == DECLARE)
        b->m->params[i].experts = experts;
    return i;
}

struct model_linear build_stack(struct builder *b, const char *name, int64_t experts, int64_t in, int64_t out, unsigned form,
                                const char *const *parts, double std)
{
    const int in_out = (form & LINEAR_IN_OUT) != 0;
    struct model_linear w = {.bias = -1, .transposed = !in_out, .in = in, .out = out, .ld = in_out ? out : in};
    w.weight = build_stacked(b, name, "", experts, in_out ? in : out, w.ld, INIT_NORMAL, std);
    if (b->pass == DECLARE)
        for (int i = 0; i < EXPERT_PARTS && parts && parts[i]; i++) {
            b->m->params[w.weight].part[i] = parts[i];
            b->m->params[w.weight].may_split = i + 1;
            b->m->params[w.weight].split = b->m->config.wrapped ? 0 : i + 1;
        }
    if (form & LINEAR_BIAS)
        w.bias = build_stacked(b, name, "_bias", experts, out, 0, INIT_ZEROS, 0);
    return w;
}

int build_adapts(const struct builder *b, const char *module)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", b->prefix, module);
    return b->rules && adapter_rank(b->rules, name) > 0;
}

void build_stack_adapter(struct builder *b, const char *module, const char *stack, int inner, int64_t experts,
                         struct model_linear *w)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", module, stack);
    if (begin_adapter(b, name, w) == 0)
        return;
    snprintf(name, sizeof name, "%s%s", module, inner ? ".base_layer" : "");
    w->down = build_stacked(b, name, ".lora_A.weight", experts, w->rank, w->in, INIT_UNIFORM, 1.0 / sqrt((double)w->in));
    w->up = build_stacked(b, name, ".lora_B.weight", experts, w->out, w->rank, INIT_ZEROS, 0);
    b->m->most_stack_rank = max_i64(b->m->most_stack_rank, w->rank);
    if (b->pass != DECLARE)
        return;
    struct model_param *down = &b->m->params[w->down], *up = &b->m->params[w->up];
    down->adapter = up->adapter = 1;
    down->renamed = up->renamed = NULL;
    down->adapted = up->adapted = stack;
    down->form = STACK_BELOW;
    up->form = STACK_BESIDE;
}

int build_frozen_vector(struct builder *b, const char *name, int64_t n, int rows)
{
    int i = build_param(b, name, "", n, 0, INIT_ZEROS, 0);
    if (b->pass == DECLARE) {
        b->m->params[i].constant = 1;
        b->m->params[i].experts = rows;
    }
    return i;
}

const struct attention_shape *build_shape(const struct builder *b, const struct attention_block *a)
{
    (void)a; /* in pass COUNT the model's shapes are not listed yet */
    return &b->shape;
}

struct model_block *build_block(struct builder *b, int l, enum block_kind kind)
{
    struct model_layer *layer = &b->m->layers[l];
    assert(layer->n_blocks < LAYER_BLOCKS);
    struct model_block *block = &layer->blocks[layer->n_blocks++];
    block->kind = kind;
    block->norm = block->inner = block->after = no_norm();
    if (kind == BLOCK_ATTENTION) {
        block->attention.q_norm = block->attention.k_norm = block->attention.v_norm = no_norm();
        block->attention.gate = block->attention.q_a = block->attention.kv_a = build_no_linear();
        block->attention.q_a_norm = block->attention.kv_a_norm = no_norm();
        block->attention.sinks = -1;
        kinds_set(b->m, l, &block->attention);
        b->shape = config_shape(&b->m->config, l);
    }
    if (kind == BLOCK_MLP)
        block->mlp.scalar = build_no_linear();
    if (kind == BLOCK_EXPERTS) {
        block->experts.router_bias = block->experts.factors = -1;
        block->experts.router_norm = no_norm();
        block->experts.descend = block->experts.ascend = build_no_linear();
    }
    if (kind == BLOCK_CONV)
        block->conv.bias = -1;
    if (kind == BLOCK_RECURRENT) {
        block->recurrent.conv = block->recurrent.conv_bias = block->recurrent.skip = -1;
        block->recurrent.a_log = block->recurrent.dt_bias = -1;
        block->recurrent.a = build_no_linear();
        block->recurrent.b = block->recurrent.second = block->recurrent.third = build_no_linear();
        block->recurrent.z_low = block->recurrent.a_low = build_no_linear();
        block->recurrent.convs = 1;
        block->recurrent.strength = 1.0f;
        block->recurrent.heads_norm = no_norm();
    }
    return block;
}

void build_head(struct builder *b)
{
    struct model *m = b->m;
    const struct model_config *c = &m->config;
    const unsigned form = b->head_bias ? LINEAR_BIAS : 0;
    if (!c->tied) {
        m->head = build_linear(b, b->head_name, c->dim, c->vocab, form, c->init_std);
        m->head_rows = build_rows(b, b->head_name, c->dim, 0);
        return;
    }
    m->head = (struct model_linear){.weight = m->embed, .bias = -1, .transposed = 1, .in = c->dim, .out = c->vocab, .ld = c->dim};
    if (form)
        m->head.bias = build_param(b, b->head_name, ".bias", c->vocab, 0, INIT_ZEROS, 0);
    build_adapter(b, b->head_name, &m->head);
}
