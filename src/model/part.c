#include "model/part.h"

#include "base/sys.h"
#include "model/block_rows.h"
#include "model/family/family.h"
#include "model/graph.h"
#include "model/kinds.h"
#include "model/part_pieces.h"

#include <stdlib.h>
#include <string.h>

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

/* Sets the parameter's shape to the total of its ranges, and its size to that of the shape. */
static void fit_shape(const struct model_config *c, struct model_param *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_ranges; i++)
        n += p->range[i].n;
    if (p->n_ranges > 0)
        p->shape[p->by_columns] = n;
    p->elements = min_i64(p->elements, p->shape[0] * max_i64(p->shape[1], 1));
    if (p->packed_bytes > 0) {
        const struct quantised q = model_quantised(c, p);
        p->packed_bytes = model_param_matrices(p) * quantised_bytes(&q);
    }
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
        fit_shape(&m->config, &m->params[i]);
    for (int64_t l = 0; l < part->layers; l++)
        place_maps(m, &m->layers[l], &whole->layers[part->first_layer + l], part);
}

/* ---- copying a part's units and layers from the whole model ---- */

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
    part_renumber(to, m);
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
    part_renumber(to, m);
}

int model_first_embeds(const struct model *m)
{
    return m->params[m->head.weight].unit != MODEL_EMBEDDING_UNIT && m->adapter_params == 0 && m->embed_rows < 0;
}

/* Freezes the embedding of a stage that does not compute it. */
static void freeze_embedding(struct model *m, const struct model *whole, const struct model_part *part)
{
    const struct model_unit *u = &m->units[MODEL_EMBEDDING_UNIT];
    for (int i = u->first_param; part->first_layer > 0 && model_first_embeds(whole) && i < u->first_param + u->n_params; i++)
        m->params[i].trained = 0;
}

/* Turns the configuration into that of a slice. Scales that are nested over the whole matrix stand by themselves in slices. */
static void slice_config(struct model_config *c, const struct model_part *part)
{
    c->heads /= part->slices;
    c->kv_heads /= part->slices;
    c->ffn /= part->slices;
    for (int i = 1; i <= MODEL_KINDS; i++) {
        c->own[i].heads /= part->slices;
        c->own[i].kv_heads /= part->slices;
    }
    if (c->base == BASE_NF4)
        c->base = BASE_NF4_PLAIN;
}

/* Turns the whole model's configuration into the part's. */
static void share_config(struct model_config *c, const struct model_part *part)
{
    if (part->slices > 1)
        slice_config(c, part);
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
    freeze_embedding(m, whole, part);
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
    TRY(part_check(whole, part));
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

void model_part_config(const struct model *m, struct model_config *out)
{
    *out = m->whole->config;
    for (int64_t l = 0; l < m->part.layers; l++)
        config_copy_layer(out, l, &m->whole->config, m->part.first_layer + l);
    out->layers = m->part.layers;
    out->first_number += m->part.first_layer;
    out->stands_in = 1;
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

int64_t model_part_span(const struct model_param *p, const struct model_param *of_whole, int64_t at, int64_t n, int64_t *there)
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
    n = model_part_span(p, whole, within, min_i64(n, p->elements - within), there);
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
