/* Steps of a short convolution between gates for a chunk, forward and backward. */
#include "plan/lower/blocks/conv.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static struct tile rows_of(const struct block *b, int c)
{
    return b->in->tiles[c];
}

/* --- Ops --- */

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
    emit_product(L, OP_SWIGLU, r1 - r0, conv_of(b)->x.out);
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, a, r0, r1, DEV);
    arg_read(L, 2, other, r0, r1, DEV);
    emit_done(L, 0);
}

/* Replaces both factors by their gradients, and dy, the gradient of their product, by the product. */
static void multiply_backward(struct lowering *L, const struct block *b, struct value *dy, struct value *a, struct value *other,
                              int c)
{
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    emit_product(L, OP_SWIGLU_GRAD, r1 - r0, conv_of(b)->x.out);
    arg_update(L, 0, a, r0, r1, DEV);
    arg_update(L, 1, other, r0, r1, DEV);
    arg_update(L, 2, dy, r0, r1, DEV);
    emit_done(L, 0);
}

void conv_input(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    multiply(L, b, &conv_work(L)->pre, &v->before, &v->x, c);
}

/* Computes the convolution of chunk c, and at the first visit its last rows, from values that are on the device. */
void conv_convolve(struct lowering *L, const struct block *b, int c)
{
    const struct convolution k = conv_convolution(conv_of(b));
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    conv_input(L, b, c);
    v->tail.room = &W->dtail;
    convolution_forward(L, &k, &W->o, &W->pre, &v->tail, c);
}

void conv_fetch(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    value_get(L, &v->before, c);
    value_get(L, &v->after, c);
    value_get(L, &v->x, c);
}

/* Computes the branch of chunk c from the convolution's output. */
void conv_branch(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    multiply(L, b, &W->y, &v->after, &W->o, c);
    value_new(L, &L->acc, c);
    lower_linear(
        L, &(struct linear_call){&conv_of(b)->out, .rows = r1 - r0, .y = {&L->acc, r0, F32}, .x = {&W->y, r0, L->s.key.dtype}});
    value_drop(L, &W->y, c);
}

void conv_drop(struct lowering *L, const struct block *b, int c)
{
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    struct value *const used[] = {b->normed, &v->before, &v->after, &v->x, &W->pre, &W->o, &L->acc};
    block_drop_stream(L, b, c);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        value_drop(L, used[i], c);
    passing_drop_before(L, &v->tail, c);
}

/* --- Backward --- */

/* Computes the gradients of one of the first maps from dy, and adds to the gradient of its input, L->acc. */
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

/* Computes the gradients of the last map, of `after` and of the convolution's output from df, the gradient of the block's output. */
static void gradient(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct conv_block *w = conv_of(b);
    struct conv_layer *v = b->values;
    struct conv_work *W = conv_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {&w->out, .rows = r1 - r0, .y = {df, r0, T}, .x = {&W->y, r0, T}};
    value_new(L, &W->y, c);
    lower_linear_dx(L, &call);
    multiply_backward(L, b, &W->y, &v->after, &W->o, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, &w->out, df, T, r0, r1);
    value_drop(L, &W->y, c);
}

void conv_output_backward(struct lowering *L, const struct block *b, int c)
{
    struct value *df = block_gradient(L, b);
    conv_fetch(L, b, c);
    conv_convolve(L, b, c);
    if (df != &L->dx) {
        if (b->weights->after.kind != NORM_NONE)
            conv_branch(L, b, c);
        block_make_gradient(L, b, &conv_of(b)->out, c);
        value_drop(L, &L->acc, c);
    }
    gradient(L, b, df, c);
    if (df != &L->dx)
        value_drop(L, df, c);
}

void conv_inputs_backward(struct lowering *L, const struct block *b, struct value *dafter, int c)
{
    const struct conv_block *w = conv_of(b);
    struct conv_layer *v = b->values;
    multiply_backward(L, b, &conv_work(L)->pre, &v->before, &v->x, c);
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    input_backward(L, b, &w->before, &v->before, c, 0);
    input_backward(L, b, &w->after, dafter, c, 1);
    input_backward(L, b, &w->x, &v->x, c, 1);
    block_norm_backward(L, b, c);
}
