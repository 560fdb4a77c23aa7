/* Problems, and models of fewer layers that stand for them. */
#include "plan/search/problem.h"

#include "machine/rank_cost.h"

#include <math.h>
#include <string.h>

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    out->model = m;
    out->request = *s;
    plan_cost_model(&out->request, &out->cost);
    memcpy(out->limit, limit, sizeof out->limit);
}

/* Returns the attention shape that most layers have. */
static int common_shape(const struct model *m)
{
    int64_t layers[MODEL_SHAPES] = {0};
    int common = 0;
    for (int i = 0; i < m->n_kinds; i++)
        layers[m->kinds[i].shape] += m->kinds[i].layers;
    for (int i = 1; i < m->n_shapes; i++)
        common = layers[i] > layers[common] ? i : common;
    return common;
}

static double width(const struct model *m, int shape)
{
    return (double)(m->shapes[shape].heads * m->shapes[shape].head_dim);
}

/* Returns the window under which a layer of the common shape attends to as many pairs as the model's layers do on average; -1:
 * none. */
static int64_t mean_window(const struct model *m, int64_t tokens)
{
    double pairs[MODEL_MASKS], mean = 0, s = (double)tokens;
    model_causal_pairs(m, tokens, pairs);
    for (const struct attention_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++)
        mean += pairs[k->mask] * k->layers / (double)m->config.layers * (width(m, k->shape) / width(m, common_shape(m)));
    double window = s - sqrt(fmax(s * s - 2 * mean, 0)); /* solves pairs = s * w - w * w / 2 for w */
    return window < s ? max_i64((int64_t)(window + 0.5), 1) : -1;
}

static int64_t first_layer(const struct model *m, int shape)
{
    int64_t l = 0;
    while (model_attention(m, l)->shape != shape)
        l++;
    return l;
}

static void set_bit(uint8_t *bits, int64_t layer, int on)
{
    const uint8_t bit = (uint8_t)(1 << layer % 8);
    bits[layer / 8] = (uint8_t)(on ? bits[layer / 8] | bit : bits[layer / 8] & ~bit);
}

/* Gives layer l of c the heads of m's shape and the window (-1: none), and marks it as windowed or not. */
static void set_layer(struct model_config *c, int64_t l, const struct model *m, int shape, int64_t window, int windowed)
{
    const struct attention_shape *s = &m->shapes[shape];
    struct layer_config own = {s->heads, s->kv_heads, s->head_dim, window};
    int i = 1;
    while (c->own[i].heads > 0 && memcmp(&c->own[i], &own, sizeof own) != 0)
        i++;
    c->own[i] = own;
    c->own_of[l] = (uint8_t)i;
    set_bit(c->windowed, l, windowed);
}

/* Lets a few layers stand for all where layers differ: one of each other shape, then layers of the common shape that attend to as
 * many pairs as the model's layers do on average. */
static void level_layers(const struct model *m, int64_t tokens, int64_t layers, struct model_config *c)
{
    const int common = common_shape(m);
    int64_t l = 0;
    memset(c->own, 0, sizeof c->own);
    for (int i = 0; i < m->n_shapes; i++) {
        const int64_t first = first_layer(m, i), window = m->mask_window[model_attention(m, first)->mask];
        if (i != common)
            set_layer(c, l++, m, i, window > 0 ? window : -1, model_bit(m->config.windowed, first));
    }
    const int windowed = m->n_shapes > 1 && model_bit(m->config.windowed, first_layer(m, common));
    for (; l < layers; l++)
        set_layer(c, l, m, common, mean_window(m, tokens), windowed);
}

enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out)
{
    struct model_config c = p->model->config;
    if (p->model->n_kinds > 1 && layers < c.layers)
        level_layers(p->model, p->request.seq_len, layers, &c);
    c.layers = layers;
    return model_create(&c, (const char *const *)p->request.freeze.item, p->request.freeze.n, out);
}

/* Makes layer l of c like layer `like` of m. */
static void copy_layer(struct model_config *c, int64_t l, const struct model *m, int64_t like)
{
    c->own_of[l] = m->config.own_of[like];
    set_bit(c->windowed, l, model_bit(m->config.windowed, like));
    set_bit(c->unrotated, l, model_bit(m->config.unrotated, like));
}

/* Returns the first layer of that kind. */
static int64_t first_of_kind(const struct model *m, int kind)
{
    int64_t l = 0;
    while (model_layer_kind(m, l) != kind)
        l++;
    return l;
}

enum status problem_few(const struct problem *p, int64_t layers, int64_t more, int kind, int of_kind[MODEL_KINDS],
                        struct model **out)
{
    const struct model *m = p->model;
    const int64_t first = m->config.layers - layers;
    struct model_config c = m->config;
    memset(of_kind, 0, MODEL_KINDS * sizeof *of_kind);
    c.layers = layers + more;
    for (int64_t l = 0; l < layers; l++) {
        if (m->n_kinds > 1)
            copy_layer(&c, more + l, m, first + l);
        of_kind[model_layer_kind(m, first + l)]++;
    }
    int64_t at = first;
    for (int k = 0; k < m->n_kinds; k++)
        if (of_kind[k] == 0) {
            while (of_kind[model_layer_kind(m, at)] < 2)
                at++;
            of_kind[model_layer_kind(m, at)]--;
            copy_layer(&c, more + at++ - first, m, first_of_kind(m, k));
            of_kind[k]++;
        }
    for (int64_t l = 0; l < more && m->n_kinds > 1; l++)
        copy_layer(&c, l, m, first_of_kind(m, kind));
    of_kind[kind < 0 ? 0 : kind] += (int)more;
    return model_create(&c, (const char *const *)p->request.freeze.item, p->request.freeze.n, out);
}
