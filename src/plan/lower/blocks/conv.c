/* The short convolution between two gates, which are products with maps of the block's input, and a map back.
 *
 * Row chunks are visited in ascending order forward and in descending order backward. The convolution's last rows after each chunk
 * are kept, so that any chunk can be computed again. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/block.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <stdio.h>

#define DEV TIER_DEVICE

/* Values of one layer: the outputs of three maps. Tile i of `tail` follows chunk i. */
struct conv_layer {
    struct value before, after, x, tail;
};

/* Values that the layers share: the convolution's input, its output, and this between gates; the gradient of what follows a chunk. */
struct conv_work {
    struct value pre, o, y, dtail;
};

static struct conv_work *work(const struct lowering *L)
{
    return L->shared[BLOCK_CONV];
}

static const struct conv_block *weights(const struct block *b)
{
    return &b->weights->conv;
}

static struct tile rows_of(const struct block *b, int c)
{
    return b->in->tiles[c];
}

/* --- Ops --- */

static struct op_attrs *emit_conv(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->conv.rows = rows;
    a->conv.cols = a->conv.ld = (int32_t)weights(b)->x.out;
    a->conv.width = (int32_t)weights(b)->width;
    a->conv.dtype = (int32_t)L->s.key.dtype;
    return a;
}

static void emit_product(struct lowering *L, enum op_kind op, int64_t rows, int64_t columns)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->act.rows = rows;
    a->act.dim = columns;
    a->act.dtype = (int32_t)L->s.key.dtype;
    a->act.kind = GATE_IDENTITY;
}

/* Computes y = a b of chunk c. */
static void multiply(struct lowering *L, const struct block *b, struct value *y, struct value *a, struct value *other, int c)
{
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    value_new(L, y, c);
    emit_product(L, OP_SWIGLU, r1 - r0, weights(b)->x.out);
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, a, r0, r1, DEV);
    arg_read(L, 2, other, r0, r1, DEV);
    emit_done(L, 0);
}

/* Makes both factors their gradients, and dy, the gradient of their product, the product. */
static void multiply_backward(struct lowering *L, const struct block *b, struct value *dy, struct value *a, struct value *other,
                              int c)
{
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    emit_product(L, OP_SWIGLU_GRAD, r1 - r0, weights(b)->x.out);
    arg_update(L, 0, a, r0, r1, DEV);
    arg_update(L, 1, other, r0, r1, DEV);
    arg_update(L, 2, dy, r0, r1, DEV);
    emit_done(L, 0);
}

static void drop_tail(struct lowering *L, struct value *v, int c)
{
    if (c == 0)
        return;
    value_drop(L, v, c - 1);
    if (!(L->duties & DUTY_BACKWARD)) /* each chunk is visited once */
        value_forget(v, c - 1);
}

/* Computes the convolution of chunk c, and at the first visit its last rows, from values that are on the device. */
static void convolve(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    struct conv_work *W = work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const int ends = c < L->n_chunks - 1 && value_where(&v->tail, c) < 0;
    multiply(L, b, &W->pre, &v->before, &v->x, c);
    if (c > 0)
        value_get(L, &v->tail, c - 1);
    value_new(L, &W->o, c);
    if (ends)
        value_new(L, &v->tail, c);
    emit_conv(L, b, OP_CONV, r1 - r0);
    arg_write(L, 0, &W->o, r0, r1, DEV);
    if (ends)
        arg_write(L, 1, &v->tail, c, c + 1, DEV);
    arg_read(L, 2, &W->pre, r0, r1, DEV);
    arg_param(L, 3, weights(b)->conv);
    if (weights(b)->bias >= 0)
        arg_param(L, 4, weights(b)->bias);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    if (c > 0)
        arg_read(L, 6, &v->tail, c - 1, c, DEV);
    emit_done(L, 0);
    if (!ends)
        return;
    value_put(L, &v->tail, c);
    value_drop(L, &v->tail, c);
}

/* Turns o, the gradient of the convolution's output, and pre into the gradient of its input, pre. */
static void convolve_backward(struct lowering *L, const struct block *b, int c)
{
    const struct conv_block *w = weights(b);
    struct conv_layer *v = b->values;
    struct conv_work *W = work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    struct op_attrs *a = emit_conv(L, b, OP_CONV_GRAD, r1 - r0);
    arg_update(L, 0, &W->pre, r0, r1, DEV);
    arg_update(L, 1, &W->dtail, 0, 1, DEV);
    if (trained(L, w->conv))
        a->conv.accumulate = arg_grad(L, 2, w->conv, 0, param_of(L, w->conv)->elements);
    if (w->bias >= 0 && trained(L, w->bias))
        a->conv.accumulate = arg_grad(L, 3, w->bias, 0, param_of(L, w->bias)->elements);
    arg_read(L, 4, &W->o, r0, r1, DEV);
    arg_param(L, 5, w->conv);
    if (w->bias >= 0)
        arg_param(L, 6, w->bias);
    arg_read(L, 7, &L->links, r0, r1, DEV);
    if (c > 0)
        arg_read(L, 8, &v->tail, c - 1, c, DEV);
    emit_done(L, 0);
}

/* --- Forward --- */

static void produce(struct lowering *L, struct value *v, int c, const struct model_linear *w)
{
    const struct block *b = v->block;
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_norm(L, b, c);
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, T}, .x = {b->normed, r0, T}});
    lower_bias(L, w, v, r0, r1);
}

static void produce_before(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &weights(v->block)->before);
}

static void produce_after(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &weights(v->block)->after);
}

static void produce_x(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &weights(v->block)->x);
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    value_get(L, &v->before, c);
    value_get(L, &v->after, c);
    value_get(L, &v->x, c);
}

/* Computes the branch of chunk c from the convolution's output. */
static void branch(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    struct conv_work *W = work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    multiply(L, b, &W->y, &v->after, &W->o, c);
    value_new(L, &L->acc, c);
    lower_linear(
        L, &(struct linear_call){&weights(b)->out, .rows = r1 - r0, .y = {&L->acc, r0, F32}, .x = {&W->y, r0, L->s.key.dtype}});
    value_drop(L, &W->y, c);
}

static void drop_chunk(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    struct conv_work *W = work(L);
    struct value *const used[] = {b->normed, &v->before, &v->after, &v->x, &W->pre, &W->o, &L->acc};
    block_drop_stream(L, b, c);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        value_drop(L, used[i], c);
    drop_tail(L, &v->tail, c);
}

static void produce_output(struct lowering *L, struct value *out, int c)
{
    const struct block *b = out->block;
    value_get(L, b->in, c);
    fetch(L, b, c);
    value_drop(L, b->normed, c);
    convolve(L, b, c);
    branch(L, b, c);
    block_add(L, b, out, &weights(b)->out, c);
    drop_chunk(L, b, c);
}

/* --- Backward --- */

/* Makes the gradients of one of the first maps from dy, and adds to the gradient of its input, L->acc. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy, int c,
                           int accumulate)
{
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {w, .rows = r1 - r0, .y = {dy, r0, T}, .x = {b->normed, r0, T}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, dy, T, r0, r1);
    call.x = (struct linear_side){&L->acc, r0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

/* Makes the gradients of the maps from that of the branch, df. */
static void gradient(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct conv_block *w = weights(b);
    struct conv_layer *v = b->values;
    struct conv_work *W = work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {&w->out, .rows = r1 - r0, .y = {df, r0, T}, .x = {&W->y, r0, T}};
    value_new(L, &W->y, c);
    lower_linear_dx(L, &call);
    multiply_backward(L, b, &W->y, &v->after, &W->o, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, &w->out, df, T, r0, r1);
    value_drop(L, &W->y, c);
    convolve_backward(L, b, c);
    multiply_backward(L, b, &W->pre, &v->before, &v->x, c);
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    input_backward(L, b, &w->before, &v->before, c, 0);
    input_backward(L, b, &w->after, &v->after, c, 1);
    input_backward(L, b, &w->x, &v->x, c, 1);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    convolve(L, b, c);
    if (df != &L->dx) {
        if (b->weights->after.kind != NORM_NONE)
            branch(L, b, c);
        block_make_gradient(L, b, &weights(b)->out, c);
        value_drop(L, &L->acc, c);
    }
    gradient(L, b, df, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_chunk(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    struct value *dtail = &work(L)->dtail;
    value_new(L, dtail, 0);
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = dtail->row_bytes;
    arg_write(L, 0, dtail, 0, 1, DEV);
    emit_done(L, 0);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        backward_chunk(L, b, c);
    value_drop(L, dtail, 0);
}

/* --- Creation --- */

static int64_t tail_bytes(const struct conv_block *w, enum dtype type)
{
    return max_i64((w->width - 1) * w->x.out, 1) * dtype_size(type);
}

static void layer_values(struct lowering *L, struct block *b)
{
    struct conv_layer *v = b->values = memory_new(L, 1, sizeof *v);
    const int64_t columns = weights(b)->x.out;
    const enum dtype T = L->s.key.dtype;
    char name[48];
    if (!v)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&v->before, "before", columns, T, CHUNKS, produce_before});
    activation_of_layer(L, b, -1, &(struct activation){&v->after, "after", columns, T, CHUNKS, produce_after});
    activation_of_layer(L, b, -1, &(struct activation){&v->x, "conv.x", columns, T, CHUNKS, produce_x});
    snprintf(name, sizeof name, "layer%d.tail", b->layer);
    value_create(L, &v->tail, name, CLASS_ACT, max_i64(L->n_chunks - 1, 1), tail_bytes(weights(b), T), 1,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, b->layer) : RES_DEVICE);
}

/* Returns the first layer's convolution, whose sizes all others have. */
static const struct conv_block *first_of(const struct model *m)
{
    const struct model_block *b = NULL;
    for (int k = 0; k < m->n_kinds && !b; k++)
        b = model_find_block(&m->layers[m->kinds[k].first], BLOCK_CONV);
    return &b->conv;
}

static void chunk_values(struct lowering *L)
{
    struct conv_work *W = L->shared[BLOCK_CONV] = memory_new(L, 1, sizeof *W);
    const struct conv_block *w = first_of(L->m);
    const enum dtype T = L->s.key.dtype;
    if (!W)
        return;
    const struct activation all[] = {{&W->pre, "conv.pre", w->x.out, T, CHUNKS},
                                     {&W->o, "conv.o", w->x.out, T, CHUNKS},
                                     {&W->y, "conv.y", w->x.out, T, CHUNKS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        activation_of_work(L, RES_NONE, -1, &all[i]);
    value_create(L, &W->dtail, "conv.dtail", CLASS_WORK, 1, tail_bytes(w, F32), 1, RES_NONE);
}

static void refuse_cache(struct lowering *L, struct block *b)
{
    (void)b;
    L->st = status_fail(ERR_INVALID, "the model's layers with a short convolution are not sampled from yet: give a model whose "
                                     "layers have attention or a recurrence");
}

/* Cuts the gradient of the matrix that holds the first maps, since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct model_linear *const parts[] = {&weights(b)->before, &weights(b)->after, &weights(b)->x};
    for (int i = 0; i < 3; i++)
        n = linear_cuts(L, parts[i], 1, OF_OUTPUTS, cuts, n, max);
    return n;
}

const struct block_lowering conv_lowering = {.grad_cuts = grad_cuts,
                                             .layer_values = layer_values,
                                             .chunk_values = chunk_values,
                                             .produce = produce_output,
                                             .backward = backward,
                                             .cache_create = refuse_cache};
