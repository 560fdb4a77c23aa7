#include "plan/lower/activation.h"

#include "plan/lower/value.h"

#include <string.h>

/* Cuts the rows into chunks; those of the stream are shared out to slices. A routed value has the rows of every ulysses member, one member after another, and each member's
 * rows are cut. */
static void cut_chunks(struct lowering *L, const char *name, enum residency r, const struct activation *a)
{
    int members = a->shape == ROUTED ? L->ulysses : 1, n = 0;
    const int64_t rows = a->shape == STREAM ? L->stream_rows : L->s.rows,
                  chunk = a->shape == STREAM ? L->stream_chunk : L->s.key.row_chunk;
    int64_t *cuts = memory_new(L, members * L->n_chunks + 1, sizeof *cuts);
    memset(a->value, 0, sizeof *a->value);
    if (!cuts)
        return;
    for (int m = 0; m < members; m++)
        for (int c = 0; c < L->n_chunks; c++)
            cuts[n++] = m * rows + c * chunk;
    cuts[n] = members * rows;
    value_create_cuts(L, a->value, name, r == RES_NONE ? CLASS_WORK : CLASS_ACT, a->cols * dtype_size(a->type), cuts, n, r);
    a->value->full = a->shape == ROUTED;
    a->value->produce = a->produce;
}

void activation_of_work(struct lowering *L, enum residency r, int index, const struct activation *a)
{
    char name[48];
    if (index < 0)
        snprintf(name, sizeof name, "%s", a->name);
    else
        snprintf(name, sizeof name, "%s%d", a->name, index);
    cut_chunks(L, name, r, a);
}

/* Lets a value that outlives a layer's pass keep its last device_chunks chunks on the device. */
static void keep_on_device(const struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (i % L->n_chunks >= L->n_chunks - L->s.placement.device_chunks)
            v->tiles[i].residency = RES_DEVICE;
}

static void layer_value(struct lowering *L, enum residency r, int layer, int index, const struct activation *a)
{
    char name[48];
    if (index < 0)
        snprintf(name, sizeof name, "layer%d.%s", layer, a->name);
    else
        snprintf(name, sizeof name, "layer%d.%s%d", layer, a->name, index);
    cut_chunks(L, name, r, a);
    if (r != RES_NONE)
        keep_on_device(L, a->value);
}

/* Keeps the first `kept` chunks for the backward pass; the others are computed again. */
static void keep_first(const struct lowering *L, int kept, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (i % L->n_chunks >= kept || !(L->duties & DUTY_BACKWARD))
            v->tiles[i].residency = RES_NONE;
}

enum residency activation_residency(const struct lowering *L, int layer)
{
    int away = (int)L->m->config.layers - L->s.placement.device_layers;
    return layer >= away ? RES_DEVICE : strategy_residency(&L->s, CLASS_ACT, layer, away);
}

/* Lets a value that the forward pass of its layer reads again stay where gradients pass, if that is nearer than its home. A
 * program without a backward pass has no use for the home. */
static void stay_between_visits(const struct lowering *L, struct value *v, enum residency home)
{
    int backward = L->duties & DUTY_BACKWARD;
    v->staged = backward && home == RES_NVME && L->s.placement.passing == RES_HOST;
    v->lingers = home != RES_DEVICE && L->s.placement.passing == RES_DEVICE;
    for (int i = 0; i < v->n_tiles && !backward && L->s.placement.passing < home; i++)
        if (v->tiles[i].residency != RES_DEVICE)
            v->tiles[i].residency = v->lingers ? RES_NONE : L->s.placement.passing;
}

void activation_of_layer(struct lowering *L, struct block *b, int index, const struct activation *a)
{
    enum residency home = a->kept == KEPT_NONE ? RES_NONE : activation_residency(L, b->layer);
    layer_value(L, home, b->layer, index, a);
    a->value->block = b;
    a->value->index = index;
    if (a->produce && a->kept != KEPT_REVISITED)
        keep_first(L, a->kept == KEPT_ALL ? L->n_chunks : strategy_kept(&L->s, model_is_light(L->m, b->layer)), a->value);
    else
        stay_between_visits(L, a->value, home);
}

int lower_keeps_input(const struct lowering *L, int layer)
{
    return layer == 0 || ((int)L->m->config.layers - 1 - layer) % L->s.placement.keep_inputs == 0;
}

void activation_of_stream(struct lowering *L, struct value *v, int layer, struct block *before)
{
    int is_input = layer < (int)L->m->config.layers;
    enum residency home = is_input ? activation_residency(L, layer) : RES_NONE;
    struct activation a = {v, "x", L->m->config.dim, L->s.key.dtype, STREAM, before ? before->lowering->produce : NULL};
    layer_value(L, home, layer, -1, &a);
    v->block = before;
    if (is_input)
        stay_between_visits(L, v, home);
    v->brief = is_input && !lower_keeps_input(L, layer);
}
