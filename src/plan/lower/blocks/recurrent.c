/* The recurrence: maps, a short convolution, a scan over each document's tokens, gated norms of heads, and a map back.
 *
 * Row chunks are visited in ascending order forward and in descending order backward. The state and the convolution's last rows
 * after each chunk are kept, so that any chunk can be computed again. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/recurrent.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <stdio.h>

#define DEV TIER_DEVICE

/* --- Forward --- */

static void apply(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *y, int c)
{
    const int64_t r0 = y->tiles[c].row0, r1 = y->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    value_new(L, y, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {y, r0, T}, .x = {b->normed, r0, T}});
    lower_bias(L, w, y, r0, r1);
}

static void produce_pre(struct lowering *L, struct value *v, int c)
{
    block_norm(L, v->block, c);
    apply(L, v->block, &recurrent_of(v->block)->qkv, v, c);
}

static void produce_z(struct lowering *L, struct value *v, int c)
{
    block_norm(L, v->block, c);
    apply(L, v->block, &recurrent_of(v->block)->z, v, c);
}

static void produce_ab(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct model_linear *maps[] = {&recurrent_of(b)->a, &recurrent_of(b)->b};
    struct value *half = &recurrent_work(L)->half;
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    block_norm(L, b, c);
    if (recurrent_of(b)->b.weight < 0) {
        apply(L, b, maps[0], v, c);
        return;
    }
    value_new(L, v, c);
    for (int i = 0; i < 2; i++) {
        const struct columns to = recurrent_half(L, b, v, i, r0), from = {half, r0, 0, L->s.key.dtype};
        apply(L, b, maps[i], half, c);
        lower_columns(L, &to, &from, r1 - r0, recurrent_of(b)->heads, i > 0);
        value_drop(L, half, c);
    }
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    value_get(L, &v->pre, c);
    value_get(L, &v->z, c);
    value_get(L, &v->ab, c);
}

static void produce_output(struct lowering *L, struct value *out, int c)
{
    const struct block *b = out->block;
    value_get(L, b->in, c);
    fetch(L, b, c);
    value_drop(L, b->normed, c);
    recurrent_scan(L, b, c);
    recurrent_branch(L, b, c);
    block_add(L, b, out, &recurrent_of(b)->out, c);
    recurrent_drop(L, b, c);
}

/* --- Backward --- */

static void fill(struct lowering *L, struct value *v)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = v->row_bytes;
    arg_write(L, 0, v, 0, 1, DEV);
    emit_done(L, 0);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    recurrent_scan(L, b, c);
    if (df != &L->dx) {
        if (b->weights->after.kind != NORM_NONE)
            recurrent_branch(L, b, c);
        block_make_gradient(L, b, &recurrent_of(b)->out, c);
        value_drop(L, &L->acc, c);
    }
    struct value *dout = recurrent_gates_backward(L, b, df, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    recurrent_scan_backward(L, b, dout, &W->dstate, 0, 1, c);
    recurrent_decay_backward(L, b, c);
    recurrent_conv_backward(L, b, &W->qkv, &W->dtail, 0, c);
    recurrent_inputs_backward(L, b, &(struct recurrent_gradients){&v->pre, &v->z, &v->ab}, c);
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    recurrent_drop(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    struct recurrent_work *W = recurrent_work(L);
    struct value *const passing[] = {&W->dstate, &W->dtail};
    if (recurrent_is_shared(L)) {
        recurrent_ranks_backward(L, b);
        return;
    }
    for (int i = 0; i < 2; i++) {
        value_new(L, passing[i], 0);
        fill(L, passing[i]);
    }
    for (int c = L->n_chunks - 1; c >= 0; c--)
        backward_chunk(L, b, c);
    for (int i = 0; i < 2; i++)
        value_drop(L, passing[i], 0);
}

/* --- Creation --- */

/* Creates what passes from chunk to chunk: a tile after each but the last. What passes from text to text is there already. */
static void passing_value(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t bytes)
{
    char name[48];
    if (recurrent_reads_on(L))
        return;
    snprintf(name, sizeof name, "layer%d.%s", b->layer, what);
    value_create(L, v, name, CLASS_ACT, max_i64(L->n_chunks - 1, 1), bytes, 1,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, b->layer) : RES_DEVICE);
}

static int64_t state_bytes(const struct recurrent_block *r)
{
    return r->heads * r->key_dim * r->value_dim * 4;
}

static int64_t tail_bytes(const struct recurrent_block *r, enum dtype type)
{
    return (r->width - 1) * r->channels * dtype_size(type);
}

static void layer_values(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    const enum dtype T = L->s.key.dtype;
    struct recurrent_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    if (!v)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&v->pre, "pre", r->channels, T, CHUNKS, produce_pre});
    activation_of_layer(L, b, -1, &(struct activation){&v->z, "z", recurrent_values(r), T, CHUNKS, produce_z});
    activation_of_layer(L, b, -1, &(struct activation){&v->ab, "ab", recurrent_numbers(r), T, CHUNKS, produce_ab});
    passing_value(L, b, &v->state.after, "state", state_bytes(r));
    passing_value(L, b, &v->tail.after, "tail", tail_bytes(r, T));
    if (recurrent_is_shared(L))
        recurrent_ranks_of_layer(L, b);
}

/* Returns the first layer's recurrence, whose sizes all others have. */
static const struct recurrent_block *first_of(const struct model *m)
{
    const struct model_block *b = NULL;
    for (int k = 0; k < m->n_kinds && !b; k++)
        b = model_find_block(&m->layers[m->kinds[k].first], BLOCK_RECURRENT);
    return &b->recurrent;
}

static void chunk_values(struct lowering *L)
{
    struct recurrent_work *W = L->shared[BLOCK_RECURRENT] = memory_new(L, 1, sizeof *W);
    const struct recurrent_block *r = first_of(L->m);
    const int64_t values = recurrent_values(r);
    const enum dtype T = L->s.key.dtype;
    if (!W)
        return;
    const struct activation all[] = {
        {&W->half, "half", r->heads, T, CHUNKS},   {&W->qkv, "qkv", r->channels, T, CHUNKS}, {&W->g, "g", r->heads, F32, CHUNKS},
        {&W->beta, "beta", r->heads, F32, CHUNKS}, {&W->o, "o", values, T, CHUNKS},          {&W->n, "no", values, T, CHUNKS},
        {&W->y, "y", values, T, CHUNKS},           {&W->dn, "dno", values, F32, CHUNKS},     {&W->dout, "do", values, T, CHUNKS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        activation_of_work(L, RES_NONE, -1, &all[i]);
    value_create(L, &W->dstate, "dstate", CLASS_WORK, 1, state_bytes(r), 1, RES_NONE);
    value_create(L, &W->dtail, "dtail", CLASS_WORK, 1, tail_bytes(r, recurrent_reads_on(L) ? T : F32), 1, RES_NONE);
    if (recurrent_is_shared(L))
        recurrent_ranks_create(L, r);
}

/* Creates the home of what follows a text. */
static void create_home(struct lowering *L, const struct block *b, struct value *v, const char *what, int64_t bytes)
{
    const enum residency r = L->s.placement.cached == RES_NVME ? RES_HOST : L->s.placement.cached;
    char name[48];
    snprintf(name, sizeof name, "layer%d.%s", b->layer, what);
    value_create(L, v, name, CLASS_ACT, 1, bytes, 1, r);
    home_create_apart(L, v, r);
}

static void cache_create(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values = memory_new(L, 1, sizeof *v);
    if (!v)
        return;
    create_home(L, b, &v->state.after, "state", state_bytes(r));
    create_home(L, b, &v->tail.after, "tail", tail_bytes(r, L->s.key.dtype));
}

static void cache_bind(struct lowering *L, const struct block *b, int end)
{
    struct recurrent_layer *v = b->values;
    value_bind_as(L, &v->state.after, BINDING_STATE, model_unit_of_layer(b->layer), end);
    value_bind_as(L, &v->tail.after, BINDING_STATE, model_unit_of_layer(b->layer), end);
}

/* Cuts the gradient of a matrix that holds several of the first maps, since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct model_linear *const maps[] = {&r->z, &r->qkv, &r->a, &r->b};
    for (int i = 0; i < 4; i++) {
        int others = 0;
        for (int k = 0; k < 4; k++)
            others += k != i && maps[k]->weight == maps[i]->weight;
        if (others > 0 && maps[i]->weight >= 0)
            n = linear_cuts(L, maps[i], 1, OF_OUTPUTS, cuts, n, max);
    }
    return n;
}

const struct block_lowering recurrent_lowering = {.grad_cuts = grad_cuts,
                                                  .layer_values = layer_values,
                                                  .chunk_values = chunk_values,
                                                  .produce = produce_output,
                                                  .forward = recurrent_ranks_forward,
                                                  .backward = backward,
                                                  .cache_create = cache_create,
                                                  .cache_bind = cache_bind};
