#include "model/part.h"

#include "base/sys.h"
#include "model/block_rows.h"
#include "model/family/family.h"
#include "model/graph.h"
#include "model/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- legal numbers of slices ---- */

/* Appends "4", then " or 8" or ", 8", to a list. */
static void add_number(char *text, size_t room, int64_t n, int last)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%lld", used == 0 ? "" : last ? " or " : ", ", (long long)n);
}

/* Refuses slices that do not divide a count; the sentence lists up to eight numbers that divide it. */
static enum status indivisible(int slices, int64_t count, const char *what)
{
    enum { LISTED = 8 };
    char legal[128] = "";
    int64_t divisor[LISTED];
    int n = 0;
    for (int64_t d = 2; d <= count && n < LISTED; d++)
        if (count % d == 0)
            divisor[n++] = d;
    for (int i = 0; i < n; i++)
        add_number(legal, sizeof legal, divisor[i], i == n - 1);
    return status_fail(ERR_INVALID, "--mesh: tp=%d does not divide the model's %lld %s: %s%s", slices, (long long)count, what,
                       n > 0 ? "take " : "leave tp out", legal);
}

/* Refuses norms that span the heads of several slices. */
static enum status check_norms(const struct model_block *b)
{
    if (b->kind != BLOCK_ATTENTION || !b->attention.whole ||
        (b->attention.q_norm.kind == NORM_NONE && b->attention.k_norm.kind == NORM_NONE))
        return OK;
    return status_fail(ERR_INVALID,
                       "--mesh: tp divides heads, and the model's norms of queries and keys are over all heads: leave tp out");
}

/* Refuses adapters with dropout, whose random masks are not drawn slice by slice, and an adapter of the head. */
static enum status check_adapters(const struct model *m)
{
    if (m->config.lora.dropout > 0)
        return status_fail(ERR_INVALID,
                           "--mesh: tp: adapters' dropout is not drawn in slices: give --lora dropout=0, or leave tp out");
    if (model_has_rows(m))
        return status_fail(ERR_INVALID,
                           "--mesh: tp: rows of tokens (--lora tokens=...) are not trained beside slices: leave out one of them");
    if (m->head.rank > 0)
        return status_fail(ERR_INVALID,
                           "--mesh: tp: the head's adapter is not trained beside slices: leave tp out, or adapt other maps "
                           "(--lora targets=...)");
    return OK;
}

static enum status check_slices(const struct model *m, int64_t layer, int slices)
{
    if (m->config.base != BASE_STORED)
        return status_fail(ERR_INVALID, "--base %s: quantised matrices are not cut into slices: leave tp out of --mesh",
                           model_base_word(m->config.base));
    for (int i = 0; i < m->layers[layer].n_blocks; i++) {
        const struct model_block *b = &m->layers[layer].blocks[i];
        TRY(check_norms(b));
        const char *what;
        const int64_t count = block_cut_count(m, b, &what);
        if (count % slices)
            return indivisible(slices, count, what);
    }
    return OK;
}

/* Refuses kinds of blocks that cannot be cut into slices. */
static enum status check_kinds(const struct model_layer *layer, int slices)
{
    for (int i = 0; i < layer->n_blocks && slices > 1; i++)
        if (!block_is_cut(layer->blocks[i].kind))
            return status_fail(ERR_INVALID,
                               "--mesh: tp=%d: the model has blocks of %s, which are not cut into slices: leave tp out", slices,
                               block_name(layer->blocks[i].kind));
    const struct model_block *b = model_find_block(layer, BLOCK_ATTENTION);
    if (b && b->attention.kv_a.weight >= 0 && slices > 1)
        return status_fail(ERR_INVALID,
                           "--mesh: tp=%d: the model has latent attention, which is not cut into slices: leave tp out", slices);
    return OK;
}

static enum status check_part(const struct model *m, const struct model_part *part)
{
    if (part->slices > 1)
        TRY(check_adapters(m));
    for (int64_t l = part->first_layer; l < part->first_layer + part->layers; l++) {
        TRY(check_kinds(&m->layers[l], part->slices));
        if (part->slices > 1)
            TRY(check_slices(m, l, part->slices));
    }
    return OK;
}

enum status model_stage(const struct model *whole, int stage, int stages, int slice, int slices, struct model_part *out)
{
    const int64_t layers = whole->config.layers, each = layers / stages, more = layers % stages;
    if (stages > layers)
        return status_fail(ERR_INVALID, "--mesh: pp=%d is more than the model's %lld layers: take pp=%lld or fewer", stages,
                           (long long)layers, (long long)layers);
    const struct model_part part = {stage * each + min_i64(stage, more), each + (stage < more), slice, slices};
    TRY(check_part(whole, &part));
    *out = part;
    return OK;
}

/* ---- slices ---- */

/* Adds rows or columns to the ranges that the part has of a parameter, in ascending order. Maps that share a range add it only
 * once. */
static void add_range(struct model_param *p, int64_t first, int64_t n, int by_columns)
{
    int at = 0;
    while (at < p->n_ranges && p->range[at].first < first)
        at++;
    if (at < p->n_ranges && p->range[at].first == first)
        return;
    for (int i = p->n_ranges++; i > at; i--)
        p->range[i] = p->range[i - 1];
    p->range[at] = (struct param_range){first, n};
    p->by_columns = by_columns;
}

/* Sets the parameter's shape to the total of its ranges. */
static void fit_shape(struct model_param *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_ranges; i++)
        n += p->range[i].n;
    if (p->n_ranges > 0)
        p->shape[p->by_columns] = n;
    p->elements = min_i64(p->elements, p->shape[0] * max_i64(p->shape[1], 1));
}

/* Cuts a map by outputs: its weight, its bias and the second half of its adapter. */
static void cut_outputs(struct model *m, struct model_linear *w, const struct model_part *part)
{
    const int64_t n = w->out / part->slices, first = w->first_out + part->slice * n;
    w->out = n;
    add_range(&m->params[w->weight], first, n, !w->transposed);
    if (w->bias >= 0)
        add_range(&m->params[w->bias], first, n, 0);
    if (w->rank > 0)
        add_range(&m->params[w->up], first, n, 0);
}

/* Cuts a map by inputs: its weight and the first half of its adapter. */
static void cut_inputs(struct model *m, struct model_linear *w, const struct model_part *part)
{
    const int64_t n = w->in / part->slices, first = part->slice * n;
    w->in = n;
    add_range(&m->params[w->weight], first, n, w->transposed);
    if (w->rank > 0)
        add_range(&m->params[w->down], first, n, 1);
}

/* Cuts a vector with an element for each head, or a matrix with a row for each head. */
static void cut_heads(struct model *m, int param, const struct model_part *part)
{
    struct model_param *p = &m->params[param];
    const int64_t n = p->shape[0] / part->slices;
    add_range(p, part->slice * n, n, 0);
}

static void cut_block(struct model *m, struct model_block *b, const struct model_part *part)
{
    struct fields f;
    block_fields(b, &f);
    for (int i = 0; i < MOST_MAPS && f.into[i]; i++)
        if (f.into[i]->weight >= 0)
            cut_outputs(m, f.into[i], part);
    if (f.out_of)
        cut_inputs(m, f.out_of, part);
    for (int i = 0; i < MOST_NORMS && f.norm[i]; i++)
        if (f.norm[i]->weight >= 0 && m->params[f.norm[i]->weight].as_vector)
            cut_heads(m, f.norm[i]->weight, part);
    if (f.by_head && *f.by_head >= 0)
        cut_heads(m, *f.by_head, part);
}

/* Sets a map's first row or column in the part's matrix, which is known once all ranges of this matrix are. whole: the same map in the
 * whole model. */
static void place_map(const struct model *m, struct model_linear *w, const struct model_linear *whole,
                      const struct model_part *part)
{
    const struct model_param *p = &m->params[w->weight];
    const int64_t first = whole->first_out + part->slice * w->out;
    w->ld = p->shape[1];
    w->first_out = 0;
    for (int i = 0; i < p->n_ranges && p->range[i].first < first; i++)
        w->first_out += p->range[i].n;
}

/* Calls place_map for all maps of a layer, once the part's matrices have their shapes. */
static void place_maps(struct model *m, struct model_layer *l, const struct model_layer *whole, const struct model_part *part)
{
    for (int i = 0; i < l->n_blocks; i++) {
        struct model_block before = whole->blocks[i];
        struct fields f, of_whole;
        block_fields(&l->blocks[i], &f);
        block_fields(&before, &of_whole);
        for (int k = 0; k < MOST_MAPS && f.into[k]; k++)
            if (f.into[k]->weight >= 0)
                place_map(m, f.into[k], of_whole.into[k], part);
        if (f.out_of)
            f.out_of->ld = m->params[f.out_of->weight].shape[1];
    }
}

/* Cuts the layers' blocks, whose parameters and maps are copies of the whole model's. */
static void cut_layers(struct model *m, const struct model *whole, const struct model_part *part)
{
    for (int64_t l = 0; l < part->layers; l++)
        for (int i = 0; i < m->layers[l].n_blocks; i++)
            cut_block(m, &m->layers[l].blocks[i], part);
    for (int i = 0; i < m->n_params; i++)
        fit_shape(&m->params[i]);
    for (int64_t l = 0; l < part->layers; l++)
        place_maps(m, &m->layers[l], &whole->layers[part->first_layer + l], part);
}

/* ---- copying a part's units and layers from the whole model ---- */

/* Returns a parameter's new index; -1 (none) stays. to: new indices. */
static int moved(const int *to, int param)
{
    return param < 0 ? param : to[param];
}

static void move_linear(const int *to, struct model_linear *w)
{
    w->weight = moved(to, w->weight);
    w->bias = moved(to, w->bias);
    if (w->rank > 0) {
        w->down = moved(to, w->down);
        w->up = moved(to, w->up);
    }
}

static void move_norm(const int *to, struct model_norm *n)
{
    n->weight = moved(to, n->weight);
    n->bias = moved(to, n->bias);
}

/* ---- parameters that slices do not cut ---- */

static void move_latents(const int *to, struct attention_block *a)
{
    move_linear(to, &a->q_a);
    move_linear(to, &a->kv_a);
    move_norm(to, &a->q_a_norm);
    move_norm(to, &a->kv_a_norm);
}

static void move_experts(const int *to, struct experts_block *e)
{
    move_linear(to, &e->router);
    move_linear(to, &e->gate_up);
    move_linear(to, &e->down);
    move_norm(to, &e->router_norm);
    e->router_bias = moved(to, e->router_bias);
    e->factors = moved(to, e->factors);
}

static void move_recurrence(const int *to, struct recurrent_block *r)
{
    struct model_linear *const maps[] = {&r->qkv, &r->second, &r->third, &r->z, &r->a, &r->z_low, &r->a_low, &r->b, &r->out};
    int *const vectors[] = {&r->conv, &r->conv_bias, &r->a_log, &r->dt_bias, &r->skip};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        move_linear(to, maps[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        *vectors[i] = moved(to, *vectors[i]);
    move_norm(to, &r->heads_norm);
}

static void move_conv(const int *to, struct conv_block *c)
{
    move_linear(to, &c->before);
    move_linear(to, &c->after);
    move_linear(to, &c->x);
    move_linear(to, &c->out);
    c->conv = moved(to, c->conv);
    c->bias = moved(to, c->bias);
}

static void move_others(const int *to, struct model_block *b)
{
    if (b->kind == BLOCK_ATTENTION)
        move_latents(to, &b->attention);
    if (b->kind == BLOCK_MLP)
        move_linear(to, &b->mlp.scalar);
    if (b->kind == BLOCK_EXPERTS)
        move_experts(to, &b->experts);
    if (b->kind == BLOCK_RECURRENT)
        move_recurrence(to, &b->recurrent);
    if (b->kind == BLOCK_CONV)
        move_conv(to, &b->conv);
}

static void move_layer(const int *to, struct model_layer *l)
{
    l->scalar = moved(to, l->scalar);
    for (int i = 0; i < l->n_blocks; i++) {
        struct model_block *b = &l->blocks[i];
        struct fields f;
        block_fields(b, &f);
        move_norm(to, &b->norm);
        move_norm(to, &b->inner);
        move_norm(to, &b->after);
        for (int k = 0; k < MOST_MAPS && f.into[k]; k++)
            move_linear(to, f.into[k]);
        if (f.out_of)
            move_linear(to, f.out_of);
        for (int k = 0; k < MOST_NORMS && f.norm[k]; k++)
            move_norm(to, f.norm[k]);
        if (f.by_head)
            *f.by_head = moved(to, *f.by_head);
        move_others(to, b);
    }
}

/* Renumbers the parameters of all maps and norms. */
static void move_all(const int *to, struct model *m)
{
    for (int64_t l = 0; l < m->part.layers; l++)
        move_layer(to, &m->layers[l]);
    m->embed = moved(to, m->embed);
    m->pos_embed = moved(to, m->pos_embed);
    m->embed_rows = moved(to, m->embed_rows);
    m->head_rows = moved(to, m->head_rows);
    move_norm(to, &m->final_norm);
    move_linear(to, &m->embedding);
    move_linear(to, &m->head);
}

/* Tells whether the part has a unit of the whole model. A part has the units of its layers, the embedding and the head. */
static int has_unit(const struct model *whole, const struct model_part *part, int unit)
{
    const int layer = whole->units[unit].layer;
    return !model_unit_in_layer(whole, unit) || (layer >= part->first_layer && layer < part->first_layer + part->layers);
}

static int count_units(const struct model *whole, const struct model_part *part)
{
    int n = 0;
    for (int u = 0; u < whole->n_units; u++)
        n += has_unit(whole, part, u);
    return n;
}

/* Returns the layer that a unit of the whole model belongs to, as the part numbers layers. */
static int layer_in_part(const struct model *whole, const struct model_part *part, int unit)
{
    const int layer = whole->units[unit].layer;
    return model_unit_in_layer(whole, unit) ? layer - (int)part->first_layer : layer < 0 ? layer : (int)part->layers;
}

/* Copies the whole model's units that the part has, with their parameters, in the same order. */
static void copy_units(struct model *m, const struct model *whole, const struct model_part *part)
{
    for (int from = 0, to = 0; from < whole->n_units; from++) {
        const struct model_unit *u = &whole->units[from];
        if (!has_unit(whole, part, from))
            continue;
        m->units[to] = (struct model_unit){
            .layer = layer_in_part(whole, part, from), .fp32 = u->fp32, .first_param = m->n_params, .n_params = u->n_params};
        for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
            m->params[m->n_params] = whole->params[i];
            m->params[m->n_params++].unit = to;
        }
        to++;
    }
}

/* Copies the layers; `to` is scratch for as many numbers as the whole model has parameters. */
static void copy_layers(struct model *m, const struct model *whole, const struct model_part *part, int *to)
{
    for (int64_t l = 0; l < part->layers; l++)
        m->layers[l] = whole->layers[part->first_layer + l];
    for (int i = 0; i < m->n_params; i++)
        to[m->params[i].whole] = i;
    move_all(to, m);
}

/* Sorts the parameters of each unit anew: the ones that slices divide come first. to: scratch, as for copy_layers, of twice as many
 * numbers. */
static void order_slices(struct model *m, int *to)
{
    int *before = to + m->whole->n_params;
    for (int i = 0; i < m->n_params; i++)
        before[m->params[i].whole] = i;
    graph_order(m);
    for (int i = 0; i < m->n_params; i++)
        to[before[m->params[i].whole]] = i;
    move_all(to, m);
}

static void share_config(struct model_config *c, const struct model_part *part)
{
    c->heads /= part->slices;
    c->kv_heads /= part->slices;
    c->ffn /= part->slices;
    for (int i = 1; i <= MODEL_KINDS; i++) {
        c->own[i].heads /= part->slices;
        c->own[i].kv_heads /= part->slices;
    }
    for (int64_t l = 0; l < part->layers; l++)
        config_copy_layer(c, l, c, part->first_layer + l);
    c->layers = part->layers;
}

/* Lists masks, heads, frequencies and kinds of the part's layers. */
static enum status list_kinds(struct model *m)
{
    m->n_masks = m->n_shapes = m->n_kinds = m->n_ropes = 0;
    m->n_frequencies = 0;
    TRY(kinds_list_attention(m, !family_of(&m->config)->learned_positions));
    for (int64_t l = 0; l < m->config.layers; l++)
        for (int i = 0; i < m->layers[l].n_blocks; i++)
            if (m->layers[l].blocks[i].kind == BLOCK_ATTENTION)
                kinds_set(m, l, &m->layers[l].blocks[i].attention);
    return kinds_list(m);
}

static enum status fill_part(struct model *m, const struct model *whole, const struct model_part *part, int *to)
{
    copy_units(m, whole, part);
    copy_layers(m, whole, part, to);
    share_config(&m->config, part);
    if (part->slices > 1)
        cut_layers(m, whole, part);
    order_slices(m, to);
    TRY(list_kinds(m));
    graph_sum(m);
    return OK;
}

enum status model_part_create(const struct model *whole, const struct model_part *part, struct model **out)
{
    struct model *m;
    TRY(check_part(whole, part));
    TRY(graph_allocate(&whole->config, part->layers, count_units(whole, part), &m));
    struct model_unit *units = m->units;
    struct model_layer *layers = m->layers;
    const int n_units = m->n_units;
    *m = *whole;
    m->units = units;
    m->layers = layers;
    m->n_units = n_units;
    m->n_params = 0;
    m->whole = whole;
    m->kept = NULL;
    m->part = *part;
    m->params = sys_calloc((size_t)whole->n_params, sizeof *m->params);
    int *to = sys_calloc(2 * (size_t)whole->n_params, sizeof *to);
    enum status st =
        m->params && to ? fill_part(m, whole, part, to) : status_fail(ERR_NOMEM, "out of memory for a part of the model");
    free(to);
    if (st != OK) {
        model_destroy(m);
        return st;
    }
    *out = m;
    return OK;
}

/* ---- models like a part ---- */

enum status model_slices_check(const struct model *whole, int slices)
{
    struct model_part part;
    return slices > 1 ? model_stage(whole, 0, 1, 0, slices, &part) : OK;
}

void model_part_config(const struct model *m, struct model_config *out)
{
    *out = m->whole->config;
    for (int64_t l = 0; l < m->part.layers; l++)
        config_copy_layer(out, l, &m->whole->config, m->part.first_layer + l);
    out->layers = m->part.layers;
}

enum status model_part_create_like(const struct model *m, const struct model_config *config, const char *const *freeze,
                                   int n_freeze, struct model **out)
{
    const struct model_part part = {0, config->layers, m->part.slice, m->part.slices};
    struct model *whole;
    TRY(model_create(config, freeze, n_freeze, &whole));
    if (part.slices == 1) {
        *out = whole;
        return OK;
    }
    enum status st = model_part_create(whole, &part, out);
    if (st != OK)
        model_destroy(whole);
    else
        (*out)->kept = whole;
    return st;
}

enum status model_create_for(const struct model *m, int64_t tokens, const char *const *freeze, int n_freeze, struct model **out)
{
    struct model_config c;
    model_part_config(m, &c);
    c.positions = tokens;
    return model_part_create_like(m, &c, freeze, n_freeze, out);
}

/* ---- elements ---- */

/* Finds a part's element `at` of a parameter in the whole parameter: its element *there. Returns how many of the n elements from `at` on
 * are adjacent in the whole parameter, too. */
static int64_t element_in_whole(const struct model_param *p, const struct model_param *of_whole, int64_t at, int64_t n,
                                int64_t *there)
{
    const int64_t cols = max_i64(p->shape[1], 1), whole_cols = max_i64(of_whole->shape[1], 1);
    int64_t index = p->by_columns ? at % cols : at / cols; /* row or column of the ranges */
    int r = 0;
    *there = at;
    if (p->n_ranges == 0)
        return n;
    while (index >= p->range[r].n)
        index -= p->range[r++].n;
    const int64_t left = p->range[r].n - index;
    if (p->by_columns) {
        *there = at / cols * whole_cols + p->range[r].first + index;
        return min_i64(n, left);
    }
    *there = (p->range[r].first + index) * cols + at % cols;
    return min_i64(n, left * cols - at % cols);
}

int64_t model_part_piece(const struct model *m, int unit, int64_t first, int64_t n, int *of_whole, int64_t *there)
{
    const struct model_unit *u = &m->units[unit];
    int i = u->first_param;
    while (i + 1 < u->first_param + u->n_params && first >= m->params[i + 1].offset)
        i++;
    const struct model_param *p = &m->params[i], *whole = &m->whole->params[p->whole];
    const int64_t within = first - p->offset;
    n = element_in_whole(p, whole, within, min_i64(n, p->elements - within), there);
    *there += whole->offset;
    *of_whole = whole->unit;
    return n;
}

int model_part_is_first(const struct model *m, int param)
{
    const struct model_param *p = &m->params[param];
    const int end = !model_unit_in_layer(m, p->unit);
    return p->n_ranges > 0 || (m->part.slice == 0 && (!end || m->part.first_layer == 0));
}
