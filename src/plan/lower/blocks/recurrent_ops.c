/* Ops of recurrences over a row chunk, forward and backward, and the states before and behind a chunk. */
#include "plan/lower/blocks/recurrent.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <math.h>

#define DEV TIER_DEVICE

const struct model_linear *recurrent_input_map(const struct recurrent_block *r, int i, int64_t *first)
{
    const struct model_linear *const all[] = {&r->qkv, &r->second, &r->third};
    *first = 0;
    for (int k = 0; k < i && k < 3; k++)
        *first += all[k]->out;
    return i < 3 && all[i]->weight >= 0 ? all[i] : NULL;
}

int64_t recurrent_numbers(const struct recurrent_block *r)
{
    return r->a.out + (r->b.weight >= 0 ? r->heads : 0);
}

void recurrent_get_numbers(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    if (recurrent_numbers(recurrent_of(b)) > 0)
        value_get(L, &v->ab, c);
}

int64_t recurrent_decays(const struct recurrent_block *r)
{
    return r->kind == RECURRENT_CHANNELS ? r->key_dim : 1;
}

int64_t recurrent_narrow(const struct recurrent_block *r)
{
    return max_i64(r->z_low.weight >= 0 ? r->z_low.out : 0, r->a_low.weight >= 0 ? r->a_low.out : 0);
}

/* Returns rows of a shared value from row `row` on, of which a map may use the first columns only. */
static struct linear_side side_of(const struct lowering *L, struct value *v, int64_t row)
{
    const enum dtype T = L->s.key.dtype;
    return (struct linear_side){v, row, T, v->row_bytes / dtype_size(T)};
}

void recurrent_low(struct lowering *L, const struct block *b, const struct model_linear *low, int c)
{
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    struct value *v = &recurrent_work(L)->low;
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){low, .rows = r1 - r0, .y = side_of(L, v, r0), .x = {b->normed, r0, L->s.key.dtype}});
}

static struct op_attrs *emit_decay(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->decay.rows = rows;
    a->decay.heads = (int32_t)r->heads;
    a->decay.ld = (int32_t)recurrent_numbers(r);
    a->decay.b_first = r->b.weight >= 0 ? (int32_t)r->a.out : -1;
    a->decay.per = recurrent_decays(r) > 1 ? (int32_t)recurrent_decays(r) : 0;
    a->decay.x_type = a->decay.dtype = (int32_t)L->s.key.dtype;
    a->decay.factor = r->strength;
    a->decay.least = r->least;
    a->decay.rate = r->rate;
    return a;
}

/* Places queries, keys and values among the convolution's columns. Only the delta rule normalises and scales its queries and keys. */
static void place_columns(const struct recurrent_block *r, struct op_attrs *a)
{
    const int32_t keys = (int32_t)(r->groups * r->key_dim);
    if (r->kind == RECURRENT_SSD) { /* x, B and C */
        a->scan.k_first = (int32_t)recurrent_values(r);
        a->scan.q_first = a->scan.k_first + keys;
        a->scan.scale = 1.0f;
        return;
    }
    a->scan.k_first = keys;
    a->scan.v_first = 2 * keys;
    a->scan.scale = 1.0f;
    if (!recurrent_has_delta(r->kind))
        return;
    a->scan.scale = (float)(1.0 / sqrt((double)r->key_dim));
    a->scan.eps = 1e-6f;
}

struct op_attrs *recurrent_emit_scan(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->scan.rows = rows;
    a->scan.kind = !recurrent_has_delta(r->kind) ? SCAN_SSD : r->kind == RECURRENT_CHANNELS ? SCAN_CHANNELS : SCAN_DELTA;
    a->scan.heads = (int32_t)r->heads;
    a->scan.groups = (int32_t)r->groups;
    a->scan.key_dim = (int32_t)r->key_dim;
    a->scan.value_dim = (int32_t)r->value_dim;
    place_columns(r, a);
    a->scan.ld = (int32_t)r->channels;
    a->scan.dtype = (int32_t)L->s.key.dtype;
    return a;
}

void recurrent_convolve(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    const struct convolution k = recurrent_convolution(r);
    v->tail.room = &W->dtail;
    convolution_forward(L, &k, &W->qkv, &v->pre, &v->tail, c);
    value_new(L, &W->g, c);
    value_new(L, &W->beta, c);
    emit_decay(L, b, OP_DECAY, r1 - r0);
    arg_write(L, 0, &W->g, r0, r1, DEV);
    arg_write(L, 1, &W->beta, r0, r1, DEV);
    if (recurrent_numbers(r) > 0) {
        arg_read(L, 2, &v->ab, r0, r1, DEV);
        arg_param(L, 3, r->a_log);
        arg_param(L, 4, r->dt_bias);
    }
    emit_done(L, 0);
}

void recurrent_scan(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    recurrent_convolve(L, b, c);
    passing_get_before(L, &v->state, c);
    value_new(L, &W->o, c);
    v->state.room = &W->dstate;
    const int after = passing_begin_after(L, &v->state, c);
    recurrent_emit_scan(L, b, OP_SCAN, r1 - r0);
    arg_write(L, 0, &W->o, r0, r1, DEV);
    if (after)
        passing_arg_after(L, 1, &v->state, c);
    arg_read(L, 2, &W->qkv, r0, r1, DEV);
    arg_read(L, 3, &W->g, r0, r1, DEV);
    arg_read(L, 4, &W->beta, r0, r1, DEV);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    passing_arg_before(L, 6, &v->state, c);
    if (r->skip >= 0)
        arg_param(L, 7, r->skip);
    emit_done(L, 0);
    if (after)
        passing_end_after(L, &v->state, c);
    recurrent_norm(L, b, c);
}

struct columns recurrent_half(const struct lowering *L, const struct block *b, struct value *ab, int which, int64_t row)
{
    return (struct columns){ab, row, which * recurrent_of(b)->a.out, L->s.key.dtype};
}

void recurrent_drop_values(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    struct value *const used[] = {b->normed, &v->pre, &v->z, &v->ab, &W->qkv, &W->g, &W->beta, &W->o, &W->n, &L->acc};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (used[i]->n_tiles > 0)
            value_drop(L, used[i], c);
    passing_drop_before(L, &v->state, c);
    passing_drop_before(L, &v->tail, c);
}

void recurrent_drop(struct lowering *L, const struct block *b, int c)
{
    block_drop_stream(L, b, c);
    recurrent_drop_values(L, b, c);
}

/* --- Backward --- */

/* Appends a parameter's gradient if it is trained; *accumulate: the op's flag. */
static void arg_grad_of(struct lowering *L, int arg, int param, int32_t *accumulate)
{
    if (trained(L, param))
        *accumulate = arg_grad(L, arg, param, 0, param_of(L, param)->elements);
}

void recurrent_scan_backward(struct lowering *L, const struct block *b, struct value *dout, struct value *dstate, int64_t row0,
                             int64_t row1, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    struct op_attrs *a = recurrent_emit_scan(L, b, OP_SCAN_GRAD, r1 - r0);
    arg_update(L, 0, &W->qkv, r0, r1, DEV);
    arg_update(L, 1, &W->g, r0, r1, DEV);
    arg_update(L, 2, &W->beta, r0, r1, DEV);
    arg_update(L, 3, dstate, row0, row1, DEV);
    if (r->skip >= 0)
        arg_grad_of(L, 4, r->skip, &a->scan.accumulate);
    arg_read(L, 5, dout, r0, r1, DEV);
    arg_read(L, 6, &L->links, r0, r1, DEV);
    passing_arg_before(L, 7, &v->state, c);
    if (r->skip >= 0)
        arg_param(L, 8, r->skip);
    emit_done(L, 0);
    value_drop(L, dout, c);
}

void recurrent_decay_backward(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    if (recurrent_numbers(r) == 0)
        return;
    struct op_attrs *a = emit_decay(L, b, OP_DECAY_GRAD, r1 - r0);
    arg_update(L, 0, &v->ab, r0, r1, DEV);
    arg_grad_of(L, 1, r->a_log, &a->decay.accumulate);
    arg_grad_of(L, 2, r->dt_bias, &a->decay.accumulate);
    arg_read(L, 3, &W->g, r0, r1, DEV);
    arg_read(L, 4, &W->beta, r0, r1, DEV);
    arg_param(L, 5, r->a_log);
    arg_param(L, 6, r->dt_bias);
    emit_done(L, 0);
}

/* Computes the gradients of a map's weights from dy, and those of its input x, of type F32, into dx. */
static void map_backward(struct lowering *L, const struct model_linear *w, struct linear_side dy, struct linear_side x,
                         struct value *dx, int64_t rows, int accumulate)
{
    struct linear_call call = {w, .rows = rows, .y = dy, .x = x};
    lower_linear_dw(L, &call);
    lower_bias_grad_of(L, w, &dy, rows);
    call.x = (struct linear_side){dx, x.row, F32, dx == &L->acc ? 0 : dx->row_bytes / 4};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

/* Computes the gradients of one of the first maps from dy, and adds to the gradient of its input, L->acc. */
static void input_backward_of(struct lowering *L, const struct block *b, const struct model_linear *w, struct linear_side dy,
                              int c, int accumulate)
{
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    map_backward(L, w, dy, (struct linear_side){b->normed, r0, L->s.key.dtype}, &L->acc, r1 - r0, accumulate);
}

/* Adds to L->acc what z or a gives, by way of its narrow input if it has one. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w,
                           const struct model_linear *low, struct linear_side dy, int c, int accumulate)
{
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    if (!low || low->weight < 0) {
        input_backward_of(L, b, w, dy, c, accumulate);
        return;
    }
    recurrent_low(L, b, low, c);
    value_new(L, &W->dlow, c);
    map_backward(L, w, dy, side_of(L, &W->low, r0), &W->dlow, r1 - r0, 0);
    value_drop(L, &W->low, c);
    input_backward_of(L, b, low, (struct linear_side){&W->dlow, r0, F32, W->dlow.row_bytes / 4}, c, accumulate);
    value_drop(L, &W->dlow, c);
}

/* Computes the gradients of the maps to pre, map by map. */
static void parts_backward(struct lowering *L, const struct block *b, struct value *dpre, int c)
{
    struct value *part = &recurrent_work(L)->part;
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    const struct model_linear *w;
    int64_t first;
    for (int i = 0; (w = recurrent_input_map(recurrent_of(b), i, &first)); i++) {
        value_new(L, part, c);
        lower_columns(L, &(struct columns){part, r0, 0, T}, &(struct columns){dpre, r0, first, T}, r1 - r0, w->out, 0);
        input_backward_of(L, b, w, side_of(L, part, r0), c, i > 0);
        value_drop(L, part, c);
    }
}

void recurrent_inputs_backward(struct lowering *L, const struct block *b, const struct recurrent_gradients *d, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct model_linear *const maps[] = {&r->a, &r->b};
    struct value *half = &recurrent_work(L)->half;
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    if (r->second.weight < 0)
        input_backward_of(L, b, &r->qkv, (struct linear_side){d->pre, r0, T}, c, 0);
    else
        parts_backward(L, b, d->pre, c);
    input_backward(L, b, &r->z, &r->z_low, (struct linear_side){d->z, r0, T}, c, 1);
    if (r->a.weight < 0)
        return;
    if (r->b.weight < 0) {
        input_backward(L, b, &r->a, &r->a_low, (struct linear_side){d->ab, r0, T}, c, 1);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct columns to = {half, r0, 0, T}, from = recurrent_half(L, b, d->ab, i, r0);
        value_new(L, half, c);
        lower_columns(L, &to, &from, r1 - r0, maps[i]->out, 0);
        input_backward(L, b, maps[i], i ? NULL : &r->a_low, side_of(L, half, r0), c, 1);
        value_drop(L, half, c);
    }
}

struct value *recurrent_outputs_backward(struct lowering *L, const struct block *b, int c)
{
    struct value *df = block_gradient(L, b);
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
    return dout;
}
