/* Windows, heads and rotary frequencies of a model's attention, and the kinds of its layers. */
#include "model/kinds.h"

#include "base/num.h"
#include "model/block_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct attention_shape config_shape(const struct model_config *c, int64_t l)
{
    const struct layer_config *own = &c->own[c->own_of[l]];
    const int64_t head_dim = own->head_dim > 0 ? own->head_dim : c->head_dim;
    return (struct attention_shape){.heads = own->heads > 0 ? own->heads : c->heads,
                                    .kv_heads = own->kv_heads > 0 ? own->kv_heads : c->kv_heads,
                                    .head_dim = head_dim,
                                    .value_dim = c->head_value > 0 ? c->head_value : head_dim,
                                    .rotated = c->head_rotated > 0 ? c->head_rotated : head_dim,
                                    .kv_latent = c->kv_latent,
                                    .q_latent = c->q_latent};
}

static int is_windowed(const struct model_config *c, int64_t l)
{
    return c->window > 0 && model_bit(c->windowed, l);
}

/* Returns the number of keys that queries of layer l attend; 0: all. */
static int64_t window_of(const struct model_config *c, int64_t l)
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

/* Tells whether a layer has attention, from its kinds of blocks. */
static int attends(const struct model *m, int64_t l)
{
    return model_attention(m, l) != NULL;
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
            const int64_t head_dim = config_shape(c, l).rotated;
            if (!attends(m, l) || has_local_rope(c, l) != local || rope_of(m, local, head_dim) < m->n_ropes)
                continue;
            m->ropes[m->n_ropes++] = (struct rope_set){local, head_dim, m->n_frequencies, model_rotated(c, head_dim) / 2};
            m->n_frequencies += model_rotated(c, head_dim) / 2;
        }
}

enum status kinds_list_attention(struct model *m, int rotates)
{
    const struct model_config *c = &m->config;
    for (int64_t l = 0; l < c->layers; l++) {
        if (!attends(m, l))
            continue;
        TRY(add_mask(m, window_of(c, l)));
        TRY(add_shape(m, l));
    }
    if (m->n_masks == 0) /* at least one: programs have a mask as input, even if nobody reads it */
        TRY(add_mask(m, 0));
    if (rotates)
        list_ropes(m);
    else
        m->n_frequencies = c->head_dim / 2;
    m->n_frequencies = max_i64(m->n_frequencies, 1);
    return OK;
}

/* Returns the factor of scores. In latent attention that of yarn belongs to it, which elsewhere is one of queries and keys. */
static float scale_of(const struct model_config *c, const struct attention_shape *s)
{
    if (c->attention_scale > 0.0)
        return (float)c->attention_scale;
    if (s->kv_latent == 0 || c->rope != ROPE_YARN || c->rope_mscale_all <= 0.0)
        return 1.0f / sqrtf((float)s->head_dim);
    const double mscale = model_yarn_scale(c->rope_factor, c->rope_mscale_all);
    return (float)(mscale * mscale / sqrt((double)s->head_dim));
}

void kinds_set(const struct model *m, int64_t l, struct attention_block *a)
{
    const struct model_config *c = &m->config;
    const struct attention_shape shape = config_shape(c, l);
    a->shape = shape_of(m, l);
    a->mask = mask_of(m, window_of(c, l));
    a->rope = m->n_ropes == 0 || model_bit(c->unrotated, l) ? -1 : rope_of(m, has_local_rope(c, l), shape.rotated);
    a->scale = scale_of(c, &shape);
    a->cap = (float)c->attention_cap;
}

int64_t model_most_heads(const struct model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->n_shapes; i++)
        most = max_i64(most, m->shapes[i].heads);
    return most;
}

/* ---- kinds of layers ---- */

/* Numbers by which kinds of layers differ, block by block. */
enum { LAYER_NUMBERS = LAYER_BLOCKS * (4 + BLOCK_SIGNATURE) };
struct layer_numbers {
    int64_t of[LAYER_NUMBERS];
};

enum windows { WINDOWS_COUNT, WINDOWS_ALIKE };

static struct layer_numbers numbers_of(const struct model_layer *layer, enum windows windows)
{
    struct layer_numbers x;
    for (int i = 0; i < LAYER_NUMBERS; i++)
        x.of[i] = -1;
    for (int i = 0, n = 0; i < layer->n_blocks; i++, n += 4 + BLOCK_SIGNATURE) {
        const struct model_block *b = &layer->blocks[i];
        const int mask = block_mask(b);
        x.of[n] = b->kind;
        x.of[n + 1] = windows == WINDOWS_ALIKE && mask > 0 ? 0 : mask;
        x.of[n + 2] = b->parallel + 2 * b->joined;
        x.of[n + 3] = (b->inner.kind * 256 + b->norm.kind) * 256 + b->after.kind;
        block_signature(b, &x.of[n + 4]);
    }
    return x;
}

static int compare(const struct layer_numbers *a, const struct layer_numbers *b)
{
    for (int i = 0; i < LAYER_NUMBERS; i++)
        if (a->of[i] != b->of[i])
            return a->of[i] < b->of[i] ? -1 : 1;
    return 0;
}

/* Refuses a layer with two blocks of a kind: values, caches and gradients of a layer are found by kind. */
static enum status check_blocks(const struct model_layer *layer, int64_t l)
{
    for (int i = 0; i < layer->n_blocks; i++)
        if (model_find_block(layer, layer->blocks[i].kind) != &layer->blocks[i])
            return status_fail(ERR_INVALID,
                               "model: layer %lld has two blocks of %s, and a layer is planned with at most one of a kind",
                               (long long)l, block_name(layer->blocks[i].kind));
    return OK;
}

/* Finds the index of a layer's numbers among those of the kinds so far. *found: 1 if the kind is in the list already. */
static int place_of(const struct layer_numbers *x, const struct layer_numbers *of, int n, int *found)
{
    int i = 0, order = 1;
    while (i < n && (order = compare(x, &of[i])) > 0)
        i++;
    *found = i < n && order == 0;
    return i;
}

enum status kinds_list(struct model *m)
{
    struct layer_numbers of[MODEL_KINDS];
    int found;
    for (int64_t l = 0; l < m->config.layers; l++) {
        const struct layer_numbers x = numbers_of(&m->layers[l], WINDOWS_COUNT);
        const int i = place_of(&x, of, m->n_kinds, &found);
        TRY(check_blocks(&m->layers[l], l));
        if (found) {
            m->kinds[i].layers++;
            continue;
        }
        if (m->n_kinds == MODEL_KINDS)
            return too_many("kinds (blocks, windows, heads, head sizes)");
        memmove(&of[i + 1], &of[i], (size_t)(m->n_kinds - i) * sizeof *of);
        memmove(&m->kinds[i + 1], &m->kinds[i], (size_t)(m->n_kinds - i) * sizeof *m->kinds);
        m->kinds[i] = (struct model_kind){(int)l, 1};
        of[i] = x;
        m->n_kinds++;
    }
    for (int64_t l = 0; l < m->config.layers; l++) {
        const struct layer_numbers x = numbers_of(&m->layers[l], WINDOWS_COUNT);
        m->layers[l].kind = place_of(&x, of, m->n_kinds, &found);
    }
    return OK;
}

int model_same_but_windows(const struct model *m, int64_t layer, int64_t other)
{
    const struct layer_numbers x = numbers_of(&m->layers[layer], WINDOWS_ALIKE), y = numbers_of(&m->layers[other], WINDOWS_ALIKE);
    return compare(&x, &y) == 0;
}

int model_is_light(const struct model *m, int64_t layer)
{
    for (int i = 0; i < m->layers[layer].n_blocks; i++)
        if (block_mask(&m->layers[layer].blocks[i]) == 0)
            return 0;
    return 1;
}

int model_light_layers(const struct model *m)
{
    int n = 0;
    for (int i = 0; i < m->n_kinds; i++)
        n += model_is_light(m, m->kinds[i].first) ? m->kinds[i].layers : 0;
    return n;
}

const char *model_light_name(const struct model *m)
{
    for (int i = 0; i < m->n_kinds; i++)
        if (!model_attention(m, m->kinds[i].first))
            return "without full attention";
    return "with a window";
}

int model_has_light(const struct model *m)
{
    const int light = model_light_layers(m);
    return light > 0 && light < m->config.layers;
}

enum block_kind model_whole_block(const struct model *m)
{
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_layer *layer = &m->layers[m->kinds[k].first];
        for (int i = 0; i < layer->n_blocks; i++)
            if (!block_is_shared(layer->blocks[i].kind))
                return layer->blocks[i].kind;
    }
    return BLOCK_KINDS;
}

int64_t model_least_piece(const struct model *m)
{
    int64_t least = 0;
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_layer *layer = &m->layers[m->kinds[k].first];
        const struct model_block *scan = model_find_block(layer, BLOCK_RECURRENT), *conv = model_find_block(layer, BLOCK_CONV);
        if (scan)
            least = max_i64(least, max_i64(scan->recurrent.width - 1, 1));
        if (conv)
            least = max_i64(least, max_i64(conv->conv.width - 1, 1));
    }
    return least;
}

void config_copy_blocks(struct model_config *c, int64_t layer, const struct model_config *from, int64_t like)
{
    c->blocks_of[layer] = from->blocks_of[like];
}

static void set_bit(uint8_t *bits, int64_t layer, int on)
{
    const uint8_t bit = (uint8_t)(1 << layer % 8);
    bits[layer / 8] = (uint8_t)(on ? bits[layer / 8] | bit : bits[layer / 8] & ~bit);
}

void config_copy_layer(struct model_config *c, int64_t layer, const struct model_config *from, int64_t like)
{
    c->own_of[layer] = from->own_of[like];
    set_bit(c->windowed, layer, model_bit(from->windowed, like));
    set_bit(c->unrotated, layer, model_bit(from->unrotated, like));
    config_copy_blocks(c, layer, from, like);
}

/* ---- names ---- */

static int same_blocks(const struct model *m, const struct model_kind *a, const struct model_kind *b)
{
    const struct model_layer *x = &m->layers[a->first], *y = &m->layers[b->first];
    int same = x->n_blocks == y->n_blocks;
    for (int i = 0; i < x->n_blocks && same; i++)
        same = x->blocks[i].kind == y->blocks[i].kind;
    return same;
}

const char *model_kind_blocks(const struct model *m, const struct model_kind *k, char text[KIND_NAME])
{
    const struct model_layer *layer = &m->layers[k->first];
    int differ = 0;
    text[0] = 0;
    for (int i = 1; i < m->n_kinds; i++)
        differ |= !same_blocks(m, &m->kinds[0], &m->kinds[i]);
    for (int i = 0, n = 0; i < layer->n_blocks && differ; i++)
        n += snprintf(text + n, (size_t)(KIND_NAME - n), "%s%s", i ? ", " : "", block_name(layer->blocks[i].kind));
    return text;
}

const char *model_kind_name(const struct model *m, const struct model_kind *k, char name[KIND_NAME])
{
    const struct attention_block *a = model_attention(m, k->first);
    const int64_t window = a ? m->mask_window[a->mask] : 0;
    char blocks[KIND_NAME];
    int n = !a           ? snprintf(name, KIND_NAME, "no attention")
            : window > 0 ? snprintf(name, KIND_NAME, "window %lld", (long long)window)
                         : snprintf(name, KIND_NAME, "full");
    if (a && m->n_shapes > 1) {
        const struct attention_shape *s = &m->shapes[a->shape];
        n += snprintf(name + n, (size_t)(KIND_NAME - n), ", %lld/%lld heads of %lld", (long long)s->heads, (long long)s->kv_heads,
                      (long long)s->head_dim);
    }
    if (model_kind_blocks(m, k, blocks)[0])
        snprintf(name + n, (size_t)(KIND_NAME - n), " (%.80s)", blocks);
    return name;
}
