/* What is planned for. */
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

/* The shape that most layers have. */
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

/* The window under which a layer of the common shape attends as much as the model's layers do on average. */
static int64_t mean_window(const struct model *m, int64_t tokens)
{
    double pairs[MODEL_MASKS], mean = 0, s = (double)tokens;
    model_causal_pairs(m, tokens, pairs);
    for (const struct attention_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++)
        mean += pairs[k->mask] * k->layers / (double)m->config.layers * (width(m, k->shape) / width(m, common_shape(m)));
    double window = s - sqrt(fmax(s * s - 2 * mean, 0)); /* of s * w - w * w / 2 pairs */
    return window < s ? max_i64((int64_t)window, m->mask_window[m->n_masks - 1] + 1) : -1;
}

static int64_t first_layer(const struct model *m, int shape)
{
    int64_t l = 0;
    while (model_attention(m, l)->shape != shape)
        l++;
    return l;
}

/* Layer l of c has heads of m's shape and that window (-1: none), and is one of the windowed layers or not. */
static void set_layer(struct model_config *c, int64_t l, const struct model *m, int shape, int64_t window, int windowed)
{
    const struct attention_shape *s = &m->shapes[shape];
    struct layer_config own = {s->heads, s->kv_heads, s->head_dim, window};
    int i = 1;
    while (c->own[i].heads > 0 && memcmp(&c->own[i], &own, sizeof own) != 0)
        i++;
    c->own[i] = own;
    c->own_of[l] = (uint8_t)i;
    c->windowed[l / 8] = (uint8_t)((c->windowed[l / 8] & ~(1 << l % 8)) | windowed << l % 8);
}

/* Where layers differ, a few stand for all: one of each other shape, and then ones of the common shape that attend as much as the
 * model's layers do on average. Where windows alone differ, the first one has the narrowest, so that there are two masks. */
static void level_layers(const struct model *m, int64_t tokens, int64_t layers, struct model_config *c)
{
    const int common = common_shape(m), alike = m->n_shapes == 1;
    int64_t l = 0;
    memset(c->own, 0, sizeof c->own);
    if (alike)
        set_layer(c, l++, m, 0, m->mask_window[m->n_masks - 1], 1);
    for (int i = 0; i < m->n_shapes; i++) {
        const int64_t first = first_layer(m, i), window = m->mask_window[model_attention(m, first)->mask];
        if (i != common)
            set_layer(c, l++, m, i, window > 0 ? window : -1, model_bit(m->config.windowed, first));
    }
    const int windowed = !alike && model_bit(m->config.windowed, first_layer(m, common));
    for (; l < layers; l++)
        set_layer(c, l, m, common, mean_window(m, tokens), windowed);
}

enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out)
{
    struct model_config c = p->model->config;
    c.layers = layers;
    if (p->model->n_kinds > 1)
        level_layers(p->model, p->request.seq_len, layers, &c);
    return model_create(&c, (const char *const *)p->request.freeze.item, p->request.freeze.n, out);
}
