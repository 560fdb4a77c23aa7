/* Kinds of attention among a configuration's layers: windows, heads, rotary frequencies. */
#include "model/kinds.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>

struct attention_shape config_shape(const struct model_config *c, int64_t l)
{
    const struct layer_config *own = &c->own[c->own_of[l]];
    return (struct attention_shape){.heads = own->heads > 0 ? own->heads : c->heads,
                                    .kv_heads = own->kv_heads > 0 ? own->kv_heads : c->kv_heads,
                                    .head_dim = own->head_dim > 0 ? own->head_dim : c->head_dim};
}

static int is_windowed(const struct model_config *c, int64_t l)
{
    return c->window > 0 && model_bit(c->windowed, l);
}

int64_t config_window(const struct model_config *c, int64_t l)
{
    const int64_t own = c->own[c->own_of[l]].window;
    return own != 0 ? max_i64(own, 0) : is_windowed(c, l) ? c->window : 0;
}

static int same_shape(const struct attention_shape *a, const struct attention_shape *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim;
}

static int mask_of(const struct model *m, int64_t window)
{
    int i = 0;
    while (i < m->n_masks && m->mask_window[i] != window)
        i++;
    return i;
}

static int shape_of(const struct model *m, int64_t l)
{
    const struct attention_shape shape = config_shape(&m->config, l);
    int i = 0;
    while (i < m->n_shapes && !same_shape(&m->shapes[i], &shape))
        i++;
    return i;
}

/* Tells whether one window is wider than another; no window (0) is the widest. */
static int is_wider(int64_t window, int64_t other)
{
    return other != 0 && (window == 0 || window > other);
}

static enum status too_many(const char *what)
{
    return status_fail(ERR_INVALID, "model: its layers have more than %d different %s, and no more are planned for", MODEL_KINDS,
                       what);
}

static enum status add_mask(struct model *m, int64_t window)
{
    int at = m->n_masks;
    if (mask_of(m, window) < m->n_masks)
        return OK;
    if (at == MODEL_MASKS)
        return too_many("windows");
    for (m->n_masks++; at > 0 && is_wider(window, m->mask_window[at - 1]); at--)
        m->mask_window[at] = m->mask_window[at - 1];
    m->mask_window[at] = window;
    return OK;
}

static enum status add_shape(struct model *m, int64_t l)
{
    if (shape_of(m, l) < m->n_shapes)
        return OK;
    if (m->n_shapes == MODEL_SHAPES)
        return too_many("numbers of heads and head sizes");
    m->shapes[m->n_shapes++] = config_shape(&m->config, l);
    return OK;
}

static enum status list_kinds(struct model *m)
{
    int layers[MODEL_MASKS][MODEL_SHAPES] = {{0}};
    for (int64_t l = 0; l < m->config.layers; l++)
        layers[mask_of(m, config_window(&m->config, l))][shape_of(m, l)]++;
    for (int i = 0; i < m->n_masks; i++)
        for (int k = 0; k < m->n_shapes; k++) {
            if (layers[i][k] == 0)
                continue;
            if (m->n_kinds == MODEL_KINDS)
                return too_many("kinds of attention (windows, heads, head sizes)");
            m->kinds[m->n_kinds++] = (struct attention_kind){i, k, layers[i][k]};
        }
    return OK;
}

static int rope_of(const struct model *m, int local, int64_t head_dim)
{
    int i = 0;
    while (i < m->n_ropes && !(m->ropes[i].local == local && m->ropes[i].head_dim == head_dim))
        i++;
    return i;
}

static int has_local_rope(const struct model_config *c, int64_t l)
{
    return c->rope_local_theta > 0.0 && is_windowed(c, l);
}

/* Lists the sets of rotary frequencies: those of layers with the common base first, then those with a local one. */
static void list_ropes(struct model *m)
{
    const struct model_config *c = &m->config;
    for (int local = 0; local < 2; local++)
        for (int64_t l = 0; l < c->layers; l++) {
            const int64_t head_dim = config_shape(c, l).head_dim;
            if (has_local_rope(c, l) != local || rope_of(m, local, head_dim) < m->n_ropes)
                continue;
            m->ropes[m->n_ropes++] = (struct rope_set){local, head_dim, m->n_frequencies, model_rotated(c, head_dim) / 2};
            m->n_frequencies += model_rotated(c, head_dim) / 2;
        }
}

enum status kinds_list(struct model *m, int rotates)
{
    const struct model_config *c = &m->config;
    for (int64_t l = 0; l < c->layers; l++) {
        TRY(add_mask(m, config_window(c, l)));
        TRY(add_shape(m, l));
    }
    TRY(list_kinds(m));
    if (rotates)
        list_ropes(m);
    else
        m->n_frequencies = c->head_dim / 2;
    return OK;
}

void kinds_set(const struct model *m, int64_t l, struct attention_block *a)
{
    const struct model_config *c = &m->config;
    const struct attention_shape shape = config_shape(c, l);
    a->shape = shape_of(m, l);
    a->mask = mask_of(m, config_window(c, l));
    a->rope = m->n_ropes == 0 || model_bit(c->unrotated, l) ? -1 : rope_of(m, has_local_rope(c, l), shape.head_dim);
    a->scale = c->attention_scale > 0.0 ? (float)c->attention_scale : 1.0f / sqrtf((float)shape.head_dim);
    a->cap = (float)c->attention_cap;
}

int model_windowed_layers(const struct model *m)
{
    int n = 0;
    for (int i = 0; i < m->n_kinds; i++)
        n += m->kinds[i].mask > 0 ? m->kinds[i].layers : 0;
    return n;
}

int64_t model_most_heads(const struct model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->n_shapes; i++)
        most = max_i64(most, m->shapes[i].heads);
    return most;
}

const char *model_kind_name(const struct model *m, const struct attention_kind *k, char name[KIND_NAME])
{
    const struct attention_shape *s = &m->shapes[k->shape];
    const int64_t window = m->mask_window[k->mask];
    int n = window > 0 ? snprintf(name, KIND_NAME, "window %lld", (long long)window) : snprintf(name, KIND_NAME, "full");
    if (m->n_shapes > 1)
        snprintf(name + n, (size_t)(KIND_NAME - n), ", %lld/%lld heads of %lld", (long long)s->heads, (long long)s->kv_heads,
                 (long long)s->head_dim);
    return name;
}
