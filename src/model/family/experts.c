/* Layers, names and keys that families with experts have in common. */
#include "model/family/experts.h"

#include <stdio.h>
#include <string.h>

const char *const experts_gate_up[] = {"gate_proj.weight", "up_proj.weight", NULL},
                  *const experts_down[] = {"down_proj.weight", NULL}, *const experts_w13[] = {"w1.weight", "w3.weight", NULL},
                  *const experts_w2[] = {"w2.weight", NULL};

const struct config_word experts_sigmoid[] = {{"sigmoid", 0}, {"noaux_tc", 0}, {NULL, 0}},
                         experts_noaux[] = {{"noaux_tc", 0}, {NULL, 0}};

enum { COLUMNS_MOST = 1 << 24 }; /* most columns of a layer's experts together: products of sizes stay below 2^62 */

/* First bit of the number of a list of blocks in config.blocks_of. */
enum lists { WITH_EXPERTS, DENSE };

int experts_has(const struct model_config *c, int64_t l)
{
    return c->experts > 0 && (c->blocks_of[l] & DENSE) == WITH_EXPERTS;
}

void experts_set(struct model_config *c, int64_t l, int has)
{
    c->blocks_of[l] = (uint8_t)((c->blocks_of[l] & ~DENSE) | (has ? WITH_EXPERTS : DENSE));
}

const char *experts_module(const struct experts_form *f)
{
    return f->module ? f->module : "mlp.experts";
}

const char *experts_first(const struct experts_form *f)
{
    return f->first ? f->first : "gate_up_proj";
}

const char *experts_router_module(const struct experts_form *f)
{
    return f->router_module ? f->router_module : f->gate;
}

/* ---- parameters ---- */

void experts_describe(struct builder *b, struct experts_block *e)
{
    const struct model_config *c = &b->m->config;
    const struct experts_form *f = b->experts;
    e->kind = f->router;
    e->normalises = c->router_normalises;
    e->scale = c->router_scale > 0.0 ? (float)c->router_scale : 1.0f;
    e->floor = (float)c->router_floor;
    e->added = f->router != ROUTER_SIGMOID ? 0 : f->added > 0 ? f->added : 1e-20f;
    e->groups = max_i64(c->expert_groups, 1);
    e->groups_used = max_i64(c->groups_used, 1);
    e->ranked = f->ranked ? f->ranked : 2;
    e->experts = c->experts;
    e->used = c->experts_used;
    e->ffn = c->expert_ffn;
    e->gate = c->gate;
    e->alternate = f->alternate;
}

/* Declares the shared experts: an MLP parallel to the block of experts, whose norm it shares. */
static void build_shared(struct builder *b, int l, const struct model_norm *norm)
{
    const struct model_config *c = &b->m->config;
    const struct experts_form *f = b->experts;
    struct model_block *block = build_block(b, l, BLOCK_MLP);
    struct mlp_block *m = &block->mlp;
    const int64_t n = c->shared_ffn;
    char name[3][64];
    block->parallel = block->joined = 1;
    block->norm = *norm;
    m->kind = c->gate;
    snprintf(name[0], sizeof name[0], "%s.%s", f->shared, f->shared_fused ? "input_linear" : "gate_proj");
    snprintf(name[1], sizeof name[1], "%s.up_proj", f->shared);
    snprintf(name[2], sizeof name[2], "%s.%s", f->shared, f->shared_fused ? "output_linear" : "down_proj");
    m->gate = build_no_linear();
    if (c->gate == GATE_ALONE) {
        m->up = build_linear(b, name[1], c->dim, n, 0, c->init_std);
    } else if (f->shared_fused) {
        const struct model_linear fused = build_linear(b, name[0], c->dim, 2 * n, 0, c->init_std);
        m->gate = build_slice(&fused, 0, n);
        m->up = build_slice(&fused, n, n);
    } else {
        m->gate = build_linear(b, name[0], c->dim, n, 0, c->init_std);
        m->up = build_linear(b, name[1], c->dim, n, 0, c->init_std);
    }
    m->down = build_linear(b, name[2], n, c->dim, 0, c->init_std);
    if (f->shared_map)
        m->scalar = build_linear(b, f->shared_map, c->dim, 1, 0, c->init_std);
}

void experts_mlp(struct builder *b, int l, const char *norm)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, experts_has(c, l) ? BLOCK_EXPERTS : BLOCK_MLP);
    if (norm)
        block->norm = build_norm(b, norm, b->experts->norm);
    if (!experts_has(c, l)) {
        common_mlp(b, &block->mlp, 0);
        return;
    }
    experts_describe(b, &block->experts);
    if (c->expert_dim > 0) {
        block->experts.descend = build_linear(b, b->experts->descend, c->dim, c->expert_dim, 0, c->init_std);
        block->experts.ascend = build_linear(b, b->experts->ascend, c->expert_dim, c->dim, 0, c->init_std);
    }
    if (c->shared_ffn > 0)
        build_shared(b, l, &block->norm);
}

/* Returns the layer's block of experts, which experts_mlp has begun. */
static struct experts_block *block_of(struct builder *b, int l)
{
    struct model_layer *layer = &b->m->layers[l];
    int i = 0;
    while (layer->blocks[i].kind != BLOCK_EXPERTS)
        i++;
    return &layer->blocks[i].experts;
}

/* Declares the router: a matrix that is no linear map of torch, without a quantised form. */
void experts_router(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const struct experts_form *f = b->experts;
    struct experts_block *e = block_of(b, l);
    char name[64];
    build_layer_prefix(b, "model.layers.", l);
    e->router = (struct model_linear){.bias = -1, .transposed = 1, .in = c->dim, .out = c->experts, .ld = c->dim};
    e->router.weight = build_matrix(b, f->gate, c->experts, c->dim, c->init_std);
    snprintf(name, sizeof name, "%s.bias", f->gate);
    if (f->biased)
        e->router.bias = build_vector(b, name, c->experts, 0);
    if (f->factors)
        e->factors = build_vector_of(b, f->factors, c->experts, INIT_ONES);
    if (f->bias)
        e->router_bias = build_frozen_vector(b, f->bias, c->experts, f->bias_rows);
    build_adapter(b, experts_router_module(f), &e->router);
    b->m->adapts_routers |= e->router.rank > 0;
}

/* Declares the stacks' adapters. Where both have one, PEFT wraps that of down_proj around that of gate_up_proj. */
static void adapt_stacks(struct builder *b, struct experts_block *e)
{
    const char *module = experts_module(b->experts);
    char down[64];
    snprintf(down, sizeof down, "%s.down_proj", module);
    build_stack_adapter(b, module, experts_first(b->experts), build_adapts(b, down), e->experts, &e->gate_up);
    build_stack_adapter(b, module, "down_proj", 0, e->experts, &e->down);
}

void experts_stacks(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    const struct experts_form *f = b->experts;
    struct experts_block *e = block_of(b, l);
    build_layer_prefix(b, "model.layers.", l);
    e->gate_up = build_stack(b, f->gate_up, c->experts, model_expert_dim(c), model_expert_columns(c), f->form, f->gate_up_parts,
                             c->init_std);
    e->down = build_stack(b, f->down, c->experts, c->expert_ffn, model_expert_dim(c), f->form, f->down_parts, c->init_std);
    adapt_stacks(b, e);
}

/* ---- checks ---- */

enum status experts_check(const struct model_config *c)
{
    const int64_t groups = max_i64(c->expert_groups, 1), used = max_i64(c->groups_used, 1);
    if (c->experts_used < 1 || c->experts_used > c->experts)
        return status_fail(ERR_INVALID, "model: %lld experts of a token, must be 1 to the %lld experts of a layer",
                           (long long)c->experts_used, (long long)c->experts);
    if (c->expert_ffn < 1)
        return status_fail(ERR_INVALID, "model: size of an expert is %lld, must be at least 1", (long long)c->expert_ffn);
    if (c->experts * c->expert_ffn > COLUMNS_MOST)
        return status_fail(ERR_INVALID, "model: %lld experts of size %lld are %lld columns, must be at most %d",
                           (long long)c->experts, (long long)c->expert_ffn, (long long)(c->experts * c->expert_ffn),
                           COLUMNS_MOST);
    if (c->experts % groups || used > groups || (groups > 1 && c->experts / groups < 2))
        return status_fail(
            ERR_INVALID,
            "model: %lld experts cannot be chosen from %lld of %lld groups: groups are equal, of two experts or more",
            (long long)c->experts, (long long)used, (long long)groups);
    if (c->experts_used > used * (c->experts / groups))
        return status_fail(ERR_INVALID, "model: %lld experts of a token are more than the %lld in %lld groups of %lld",
                           (long long)c->experts_used, (long long)(used * (c->experts / groups)), (long long)used,
                           (long long)(c->experts / groups));
    return OK;
}

/* ---- config.json ---- */

enum status experts_derive(struct config_reader *r, struct model_config *c)
{
    if (c->expert_ffn == 0 && c->experts > 0)
        c->expert_ffn = c->ffn;
    if (c->ffn == 0)
        c->ffn = c->expert_ffn;
    return llama_derive(r, c);
}

enum status experts_read_count(struct config_reader *r, struct model_config *c)
{
    const struct experts_form *f = r->family->experts;
    int64_t other = 0;
    TRY(config_read_count(r, f->count[0], OPTIONAL, 1, &c->experts));
    if (f->count[1])
        TRY(config_read_count(r, f->count[1], OPTIONAL, 1, &other));
    if (c->experts > 0 && other > 0 && c->experts != other)
        return config_refuse(r, f->count[1], "it says something else than the other key of the number of experts");
    c->experts = max_i64(c->experts, other);
    return c->experts > 0 ? OK : config_missing(r, f->count[0]);
}

json_t *experts_write_count(const struct model_config *c)
{
    return json_integer(c->experts);
}

enum status experts_read_shared(struct config_reader *r, struct model_config *c)
{
    const struct experts_form *f = r->family->experts;
    int64_t n = f->shared_count;
    TRY(config_read_count(r, f->shared_key, OPTIONAL, 0, &n));
    if (n > 0 && c->expert_ffn > INT32_MAX / n)
        return config_refuse(r, f->shared_key, "the shared experts are too wide");
    c->shared_ffn = n * c->expert_ffn;
    return OK;
}

json_t *experts_write_shared(const struct model_config *c)
{
    return json_integer(c->expert_ffn > 0 ? c->shared_ffn / c->expert_ffn : 0);
}

/* Reads mlp_layer_types: "dense" or "sparse" for each layer. */
static enum status read_list(struct config_reader *r, struct model_config *c)
{
    const json_t *list = config_get(r, "mlp_layer_types"), *type;
    size_t l;
    if (!list)
        return OK;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->layers || c->layers > LAYERS_MOST)
        return config_refuse(r, "mlp_layer_types", "must be a list with an entry for each of num_hidden_layers");
    json_array_foreach((json_t *)list, l, type)
    {
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        if (strcmp(text, "dense") != 0 && strcmp(text, "sparse") != 0)
            return config_refuse(r, "mlp_layer_types", "supported: dense, sparse");
        experts_set(c, (int64_t)l, strcmp(text, "sparse") == 0);
    }
    return OK;
}

enum status experts_read_layers(struct config_reader *r, struct model_config *c)
{
    const struct experts_form *f = r->family->experts;
    int64_t first = f->first_count;
    if (f->first_key)
        TRY(config_read_count(r, f->first_key, OPTIONAL, 0, &first));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        experts_set(c, l, l >= first);
    return f->listed ? read_list(r, c) : OK;
}

json_t *experts_write_first(const struct model_config *c)
{
    int64_t first = 0;
    while (first < c->layers && !experts_has(c, first))
        first++;
    return json_integer(first);
}

json_t *experts_list_layers(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_string(experts_has(c, l) ? "sparse" : "dense"));
    return list;
}

enum status experts_read_step(struct config_reader *r, struct model_config *c)
{
    const json_t *dense = config_get(r, "mlp_only_layers"), *number;
    int64_t step = 1;
    size_t i;
    TRY(config_read_count(r, "decoder_sparse_step", OPTIONAL, 1, &step));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        experts_set(c, l, (l + 1) % step == 0);
    if (dense && !json_is_array(dense))
        return config_refuse(r, "mlp_only_layers", "must be a list of numbers of layers");
    json_array_foreach((json_t *)dense, i, number)
    {
        const json_int_t l = json_is_integer(number) ? json_integer_value(number) : -1;
        if (l < 0 || l >= min_i64(c->layers, LAYERS_MOST))
            return config_refuse(r, "mlp_only_layers", "its entries must be numbers of layers, from 0 on");
        experts_set(c, l, 0);
    }
    return OK;
}

json_t *experts_write_one(const struct model_config *c)
{
    (void)c;
    return json_integer(1);
}

json_t *experts_write_width(const struct model_config *c)
{
    return json_integer(c->shared_ffn);
}

json_t *experts_list_dense(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        if (!experts_has(c, l))
            json_array_append_new(list, json_integer((json_int_t)l));
    return list;
}

enum status experts_read_aux(struct config_reader *r, struct model_config *c)
{
    const json_t *v = config_get(r, "router_aux_loss_coef");
    c->router_aux = v ? json_number_value(v) : r->family->experts->aux;
    if (v && !(json_is_number(v) && c->router_aux >= 0.0 && c->router_aux <= 1e6))
        return config_refuse(r, "router_aux_loss_coef", "must be a number from 0 to a million");
    return OK;
}

json_t *experts_write_aux(const struct model_config *c)
{
    return json_real(c->router_aux);
}

enum status experts_read_further(struct config_reader *r, struct model_config *c)
{
    static const char *const keys[] = {"num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        TRY(config_read_count(r, keys[i], OPTIONAL, 0, &c->further_layers));
    return OK;
}

json_t *experts_write_further(const struct model_config *c)
{
    return json_integer(c->further_layers);
}

enum status experts_read_no_window(struct config_reader *r, struct model_config *c)
{
    const json_t *types = config_get(r, "layer_types"), *type;
    size_t i;
    (void)c;
    json_array_foreach((json_t *)types, i, type)
    {
        if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention") != 0)
            return config_refuse(r, "layer_types", "in this family only full_attention is supported");
    }
    return config_only_bool(r, "use_sliding_window", 0);
}

enum status experts_read_rotated(struct config_reader *r, struct model_config *c)
{
    int64_t rotated = 0;
    TRY(config_read_count(r, "rotary_dim", OPTIONAL, 1, &rotated));
    if (rotated > 0 && c->rope_share > 0.0)
        return config_refuse(r, "rotary_dim", "partial_rotary_factor says it, too: leave out one of them");
    if (rotated > c->head_dim)
        return config_refuse(r, "rotary_dim", "it is larger than head_dim");
    if (rotated > 0 && rotated < c->head_dim)
        c->rope_share = (double)rotated / (double)c->head_dim;
    return OK;
}

enum status experts_read_null_window(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_null(r, "sliding_window");
}

enum status experts_read_jitter(struct config_reader *r, struct model_config *c)
{
    (void)c;
    return config_only_number(r, "router_jitter_noise", 0.0);
}
