/* Problems, and models of fewer layers that stand for them. */
#include "plan/search/problem.h"

#include "base/mix.h"
#include "machine/rank_cost.h"
#include "model/part.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Hashes the costs, but not the text that says where they are from. */
static uint64_t hash_costs(const struct cost_model *c)
{
    uint64_t h = 0, word;
    for (size_t at = 0; at + sizeof word <= offsetof(struct cost_model, source); at += sizeof word) {
        memcpy(&word, (const char *)c + at, sizeof word);
        h = mix(h, word);
    }
    return h;
}

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    memset(out, 0, sizeof *out);
    out->model = m;
    out->request = *s;
    plan_cost_model(&out->request, &out->cost);
    out->costs = hash_costs(&out->cost);
    memcpy(out->limit, limit, sizeof out->limit);
}

/* Layers that are of one kind if windows are ignored. */
struct alike {
    int64_t first, layers; /* index of the first such layer, and the number of such layers */
};

/* Lists the kinds of layers, windows ignored, in the order of their first layers; returns the number of kinds. */
static int list_alike(const struct model *m, struct alike out[MODEL_KINDS])
{
    int n = 0;
    for (int64_t l = 0; l < m->config.layers; l++) {
        int i = 0;
        while (i < n && !model_same_but_windows(m, l, out[i].first))
            i++;
        if (i == n)
            out[n++] = (struct alike){l, 0};
        out[i].layers++;
    }
    return n;
}

/* Returns the index of the kind that has the most layers. */
static int most_frequent(const struct alike *all, int n)
{
    int common = 0;
    for (int i = 1; i < n; i++)
        common = all[i].layers > all[common].layers ? i : common;
    return common;
}

int64_t problem_least_layers(const struct problem *p, int64_t layers)
{
    struct alike all[MODEL_KINDS] = {{0}};
    return max_i64(layers, list_alike(p->model, all));
}

static double width(const struct model *m, int shape)
{
    return (double)(m->shapes[shape].heads * m->shapes[shape].head_dim);
}

/* Returns the window under which heads of `shape` attend to as many pairs as layers with attention do on average; -1: no window. */
static int64_t mean_window(const struct model *m, int64_t tokens, int shape)
{
    double pairs[MODEL_MASKS], mean = 0, s = (double)tokens, layers = 0;
    model_causal_pairs(m, tokens, pairs);
    for (const struct model_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++)
        layers += model_attention(m, k->first) ? k->layers : 0;
    for (const struct model_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++) {
        const struct attention_block *a = model_attention(m, k->first);
        mean += a ? pairs[a->mask] * k->layers / layers * (width(m, a->shape) / width(m, shape)) : 0;
    }
    double window = s - sqrt(fmax(s * s - 2 * mean, 0)); /* solves pairs = s * w - w * w / 2 for w */
    return window < s ? max_i64((int64_t)(window + 0.5), 1) : -1;
}

static void set_windowed(struct model_config *c, int64_t layer, int on)
{
    const uint8_t bit = (uint8_t)(1 << layer % 8);
    c->windowed[layer / 8] = (uint8_t)(on ? c->windowed[layer / 8] | bit : c->windowed[layer / 8] & ~bit);
}

/* Gives layer l of c the blocks and heads of layer `like` of m and the window (-1: none), and marks it as windowed or not. */
static void set_layer(struct model_config *c, int64_t l, const struct model *m, int64_t like, int64_t window, int windowed)
{
    const struct attention_block *a = model_attention(m, like);
    config_copy_blocks(c, l, &m->config, like);
    set_windowed(c, l, windowed);
    c->own_of[l] = 0;
    if (!a)
        return;
    const struct attention_shape *s = &m->shapes[a->shape];
    const int slices = m->part.slices;
    struct layer_config own = {s->heads * slices, s->kv_heads * slices, s->head_dim, window};
    int i = 1;
    while (c->own[i].heads > 0 && memcmp(&c->own[i], &own, sizeof own) != 0)
        i++;
    c->own[i] = own;
    c->own_of[l] = (uint8_t)i;
}

/* Lets a few layers stand for all where layers differ: one of each rarer kind, then layers of the most frequent one, which attend to
 * as many pairs as the model's layers do on average. */
static void level_layers(const struct model *m, int64_t tokens, int64_t layers, struct model_config *c)
{
    struct alike all[MODEL_KINDS] = {{0}};
    const int n = list_alike(m, all), common = most_frequent(all, n);
    const struct attention_block *usual = model_attention(m, all[common].first);
    int64_t l = 0;
    memset(c->own, 0, sizeof c->own);
    for (int i = 0; i < n; i++) {
        const struct attention_block *a = model_attention(m, all[i].first);
        const int64_t window = a ? m->mask_window[a->mask] : 0;
        if (i != common)
            set_layer(c, l++, m, all[i].first, window > 0 ? window : -1, model_bit(m->config.windowed, all[i].first));
    }
    const int windowed = n > 1 && model_bit(m->config.windowed, all[common].first);
    for (; l < layers; l++)
        set_layer(c, l, m, all[common].first, usual ? mean_window(m, tokens, usual->shape) : -1, windowed);
}

/* ---- models of a few layers ---- */

static int is_trained(const struct model *m, int64_t layer)
{
    for (int u = 0; u < m->n_units; u++)
        if (model_unit_in_layer(m, u) && m->units[u].layer == layer && m->units[u].trained_elements > 0)
            return 1;
    return 0;
}

/* Returns the first of the adjacent layers whose names a few layers bear: the model's first layers or, if these are frozen, those up to
 * its last trained one. */
static int64_t first_named(const struct model *m, int64_t layers)
{
    int64_t last = -1;
    for (int64_t l = 0; l < m->config.layers; l++) {
        if (!is_trained(m, l))
            continue;
        if (l < layers)
            return 0;
        last = l;
    }
    return last < 0 ? 0 : last + 1 - layers;
}

/* Creates the model of configuration c. Without adapters and frozen parameters its names say nothing, and models of equal layers are
 * equal. */
static enum status create_few(const struct problem *p, struct model_config *c, struct model **out)
{
    const struct string_list *freeze = &p->request.freeze;
    const int named = c->lora.rank > 0 || freeze->n > 0;
    c->first_number = named ? c->first_number + first_named(p->model, c->layers) : 0;
    return model_part_create_like(p->model, c, (const char *const *)freeze->item, freeze->n, out);
}

enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out)
{
    struct model_config c;
    model_part_config(p->model, &c);
    if (p->model->n_kinds > 1 && layers < c.layers)
        level_layers(p->model, p->request.seq_len, layers, &c);
    c.layers = layers;
    return create_few(p, &c, out);
}

enum status problem_few(const struct problem *p, int64_t layers, int64_t more, int kind, int of_kind[MODEL_KINDS],
                        struct model **out)
{
    const struct model *m = p->model;
    const int64_t first = m->config.layers - layers;
    struct model_config c, all;
    model_part_config(m, &all);
    c = all;
    memset(of_kind, 0, MODEL_KINDS * sizeof *of_kind);
    c.layers = layers + more;
    for (int64_t l = 0; l < layers; l++) {
        if (m->n_kinds > 1)
            config_copy_layer(&c, more + l, &all, first + l);
        of_kind[m->layers[first + l].kind]++;
    }
    int64_t at = first;
    for (int k = 0; k < m->n_kinds; k++)
        if (of_kind[k] == 0) {
            while (of_kind[m->layers[at].kind] < 2)
                at++;
            of_kind[m->layers[at].kind]--;
            config_copy_layer(&c, more + at++ - first, &all, m->kinds[k].first);
            of_kind[k]++;
        }
    for (int64_t l = 0; l < more && m->n_kinds > 1; l++)
        config_copy_layer(&c, l, &all, m->kinds[kind].first);
    of_kind[kind < 0 ? 0 : kind] += (int)more;
    return create_few(p, &c, out);
}
