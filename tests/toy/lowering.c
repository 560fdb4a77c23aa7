/* The toy block: a gated scan over each document's tokens, between maps. Its state passes from row chunk to row chunk. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/block.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/state.h"
#include "plan/lower/visit.h"

#include <stdio.h>

#define DEV TIER_DEVICE

/* Values of one layer. state: tile i is the state after chunk i, kept until the backward pass; text: the state after the text
 * read so far when sampling. */
struct toy_layer {
    struct value u, g, state, text;
};

/* Values that the layers share. now: a state that is not read again; carry: the gradient of a chunk's last state. */
struct toy_work {
    struct value y, dy, now, carry;
};

static struct toy_work *work(const struct lowering *L)
{
    return L->shared[BLOCK_TOY];
}

static int64_t width(const struct block *b)
{
    return b->weights->toy.in.out;
}

static void act_attrs(const struct lowering *L, const struct block *b, struct op_attrs *a, int64_t rows)
{
    a->act.rows = rows;
    a->act.dim = width(b);
    a->act.dtype = (int32_t)L->s.key.dtype;
}

static void fill(struct lowering *L, struct value *v, int tile)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = v->row_bytes;
    arg_write(L, 0, v, tile, tile + 1, DEV);
    emit_done(L, 0);
}

/* Computes y of chunk c with a state that is on the device, and writes the state after the chunk there. */
static void emit_scan(struct lowering *L, const struct block *b, int c, struct value *state, int tile)
{
    struct toy_layer *v = b->values;
    const int64_t r0 = v->u.tiles[c].row0, r1 = v->u.tiles[c].row1;
    act_attrs(L, b, emit(L, OP_TOY_SCAN, LANE_COMPUTE), r1 - r0);
    arg_write(L, 0, &work(L)->y, r0, r1, DEV);
    arg_update(L, 1, state, tile, tile + 1, DEV);
    arg_read(L, 2, &v->u, r0, r1, DEV);
    arg_read(L, 3, &v->g, r0, r1, DEV);
    arg_read(L, 4, &L->positions, r0, r1, DEV);
    if (L->s.cached_tokens > 0)
        arg_read(L, 5, &L->index, r0, r1, DEV);
    emit_done(L, 0);
}

static void scan_text(struct lowering *L, const struct block *b)
{
    struct toy_layer *v = b->values;
    value_get(L, &v->text, 0);
    emit_scan(L, b, 0, &v->text, 0);
    value_put_home(L, &v->text, 0, 1, DEV);
    value_drop(L, &v->text, 0);
}

/* Computes y of chunk c from u and g. The state after the chunk is kept the first time. */
static void scan(struct lowering *L, const struct block *b, int c)
{
    struct toy_layer *v = b->values;
    const int is_last = c == L->n_chunks - 1, is_known = !is_last && value_where(&v->state, c) >= 0;
    struct value *to = is_last || is_known ? &work(L)->now : &v->state;
    const int tile = to == &v->state ? c : 0;
    value_new(L, &work(L)->y, c);
    if (L->s.cached_tokens > 0) {
        scan_text(L, b);
        return;
    }
    if (c > 0)
        value_get(L, &v->state, c - 1);
    value_new(L, to, tile);
    if (c > 0)
        lower_cast_rows(L, to, tile, F32, &v->state, c - 1, F32, 1);
    else
        fill(L, to, tile);
    if (c > 0)
        value_drop(L, &v->state, c - 1);
    emit_scan(L, b, c, to, tile);
    value_put(L, to, tile);
    value_drop(L, to, tile);
}

static void drop_chunk(struct lowering *L, const struct block *b, int c)
{
    struct toy_layer *v = b->values;
    block_drop_stream(L, b, c);
    value_drop(L, b->normed, c);
    value_drop(L, &v->u, c);
    value_drop(L, &v->g, c);
    value_drop(L, &work(L)->y, c);
    value_drop(L, &L->acc, c);
}

/* --- Forward --- */

static void produce(struct lowering *L, struct value *v, int c, const struct model_linear *w)
{
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_norm(L, v->block, c);
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, T}, .x = {v->block->normed, r0, T}});
    lower_bias(L, w, v, r0, r1);
}

static void produce_u(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &v->block->weights->toy.in);
}

static void produce_g(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &v->block->weights->toy.gate);
}

static void branch(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *out = &b->weights->toy.out;
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    value_new(L, &L->acc, c);
    lower_linear(L, &(struct linear_call){out, .rows = r1 - r0, .y = {&L->acc, r0, F32}, .x = {&work(L)->y, r0, L->s.key.dtype}});
}

static void produce_output(struct lowering *L, struct value *out, int c)
{
    const struct block *b = out->block;
    struct toy_layer *v = b->values;
    value_get(L, b->in, c);
    value_get(L, &v->u, c);
    value_get(L, &v->g, c);
    value_drop(L, b->normed, c);
    scan(L, b, c);
    branch(L, b, c);
    block_add(L, b, out, &b->weights->toy.out, c);
    drop_chunk(L, b, c);
}

/* --- Backward --- */

static void emit_scan_grad(struct lowering *L, const struct block *b, int c)
{
    struct toy_layer *v = b->values;
    struct toy_work *W = work(L);
    const int64_t r0 = v->u.tiles[c].row0, r1 = v->u.tiles[c].row1;
    if (c == L->n_chunks - 1) {
        value_new(L, &W->carry, 0);
        fill(L, &W->carry, 0);
    }
    if (c > 0)
        value_get(L, &v->state, c - 1);
    act_attrs(L, b, emit(L, OP_TOY_SCAN_GRAD, LANE_COMPUTE), r1 - r0);
    arg_update(L, 0, &v->u, r0, r1, DEV);
    arg_update(L, 1, &v->g, r0, r1, DEV);
    arg_update(L, 2, &W->carry, 0, 1, DEV);
    arg_read(L, 3, &W->y, r0, r1, DEV);
    arg_read(L, 4, &W->dy, r0, r1, DEV);
    if (c > 0)
        arg_read(L, 5, &v->state, c - 1, c, DEV);
    arg_read(L, 6, &L->positions, r0, r1, DEV);
    emit_done(L, 0);
    value_drop(L, c > 0 ? &v->state : &W->carry, c > 0 ? c - 1 : 0);
}

/* Computes the gradients of one of the first maps from dy, and adds to the gradient of its input, L->acc. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy, int c,
                           int accumulate)
{
    const int64_t r0 = dy->tiles[c].row0, r1 = dy->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {w, .rows = r1 - r0, .y = {dy, r0, T}, .x = {b->normed, r0, T}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, dy, T, r0, r1);
    call.x = (struct linear_side){&L->acc, r0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *out = &b->weights->toy.out;
    struct toy_layer *v = b->values;
    struct toy_work *W = work(L);
    struct value *df = block_gradient(L, b);
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    value_get(L, &v->u, c);
    value_get(L, &v->g, c);
    scan(L, b, c);
    if (df != &L->dx) {
        branch(L, b, c);
        block_make_gradient(L, b, out, c);
        value_drop(L, &L->acc, c);
    }
    value_new(L, &W->dy, c);
    struct linear_call call = {out, .rows = r1 - r0, .y = {df, r0, T}, .x = {&W->dy, r0, T}};
    lower_linear_dx(L, &call);
    call.x.value = &W->y;
    lower_linear_dw(L, &call);
    lower_bias_grad(L, out, df, T, r0, r1);
    if (df != &L->dx)
        value_drop(L, df, c);
    emit_scan_grad(L, b, c);
    value_drop(L, &W->dy, c);
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    input_backward(L, b, &b->weights->toy.in, &v->u, c, 0);
    input_backward(L, b, &b->weights->toy.gate, &v->g, c, 1);
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_chunk(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    for (int c = L->n_chunks - 1; c >= 0; c--)
        backward_chunk(L, b, c);
}

/* Forgets the states of a program without a backward pass after the layer's last visit. */
static void leave(struct lowering *L, struct block *b)
{
    struct toy_layer *v = b->values;
    for (int i = 0; i < v->state.n_tiles && !(L->duties & DUTY_BACKWARD); i++)
        value_forget(&v->state, i);
}

/* --- Creation --- */

static void layer_values(struct lowering *L, struct block *b)
{
    struct toy_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    char name[48];
    if (!v)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&v->u, "toy_u", width(b), L->s.key.dtype, CHUNKS, produce_u});
    activation_of_layer(L, b, -1, &(struct activation){&v->g, "toy_g", width(b), L->s.key.dtype, CHUNKS, produce_g});
    snprintf(name, sizeof name, "layer%d.toy_state", b->layer);
    value_create(L, &v->state, name, CLASS_ACT, max_i64(L->n_chunks - 1, 1), width(b) * 4, 1,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, b->layer) : RES_DEVICE);
}

static void chunk_values(struct lowering *L)
{
    struct toy_work *W = L->shared[BLOCK_TOY] = memory_new(L, 1, sizeof *W);
    const int64_t dim = 2 * L->m->config.dim;
    if (!W)
        return;
    activation_of_work(L, RES_NONE, -1, &(struct activation){&W->y, "toy_y", dim, L->s.key.dtype, CHUNKS});
    activation_of_work(L, RES_NONE, -1, &(struct activation){&W->dy, "toy_dy", dim, L->s.key.dtype, CHUNKS});
    value_create(L, &W->now, "toy_now", CLASS_WORK, 1, dim * 4, 1, RES_NONE);
    value_create(L, &W->carry, "toy_carry", CLASS_WORK, 1, dim * 4, 1, RES_NONE);
}

static void cache_create(struct lowering *L, struct block *b)
{
    struct toy_layer *v = b->values = memory_new(L, 1, sizeof *v);
    const enum residency r = L->s.placement.cached == RES_NVME ? RES_HOST : L->s.placement.cached;
    char name[48];
    if (!v)
        return;
    snprintf(name, sizeof name, "layer%d.state", b->layer);
    value_create(L, &v->text, name, CLASS_ACT, 1, width(b) * 4, 1, r);
    home_create_apart(L, &v->text, r);
}

static void cache_bind(struct lowering *L, const struct block *b, int end)
{
    value_bind_as(L, &((struct toy_layer *)b->values)->text, BINDING_STATE, b->layer + 1, end);
}

const struct block_lowering toy_lowering = {.layer_values = layer_values,
                                            .chunk_values = chunk_values,
                                            .produce = produce_output,
                                            .leave = leave,
                                            .backward = backward,
                                            .cache_create = cache_create,
                                            .cache_bind = cache_bind};
