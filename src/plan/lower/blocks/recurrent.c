/* The recurrence: maps, a short convolution, a scan over each document's tokens, gated norms of heads, and a map back.
 *
 * Row chunks are visited in ascending order forward and in descending order backward. The state and the convolution's last rows
 * after each chunk are kept, so that any chunk can be computed again. */
#include "plan/lower/activation.h"
#include "plan/lower/blocks/recurrent.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#include <math.h>
#include <stdio.h>

#define DEV TIER_DEVICE

/* Returns the numbers a token that make decays and, beside a map to strengths, these. */
static int64_t numbers_of(const struct recurrent_block *r)
{
    return (r->b.weight >= 0 ? 2 : 1) * r->heads;
}

/* --- Ops --- */

static struct op_attrs *emit_conv(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->conv.rows = rows;
    a->conv.cols = a->conv.ld = (int32_t)r->channels;
    a->conv.width = (int32_t)r->width;
    a->conv.silu = 1;
    a->conv.dtype = (int32_t)L->s.key.dtype;
    return a;
}

static struct op_attrs *emit_decay(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->decay.rows = rows;
    a->decay.heads = (int32_t)r->heads;
    a->decay.ld = (int32_t)numbers_of(r);
    a->decay.b_first = r->b.weight >= 0 ? (int32_t)r->heads : -1;
    a->decay.x_type = a->decay.dtype = (int32_t)L->s.key.dtype;
    a->decay.factor = 1.0f;
    a->decay.least = r->least;
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
    a->scan.scale = (float)(1.0 / sqrt((double)r->key_dim));
    a->scan.eps = 1e-6f;
}

static struct op_attrs *emit_scan(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->scan.rows = rows;
    a->scan.kind = r->kind == RECURRENT_SSD ? SCAN_SSD : SCAN_DELTA;
    a->scan.heads = (int32_t)r->heads;
    a->scan.groups = (int32_t)r->groups;
    a->scan.key_dim = (int32_t)r->key_dim;
    a->scan.value_dim = (int32_t)r->value_dim;
    place_columns(r, a);
    a->scan.ld = (int32_t)r->channels;
    a->scan.dtype = (int32_t)L->s.key.dtype;
    return a;
}

/* Tells whether the program reads a text on, in one chunk. */
static int reads_on(const struct lowering *L)
{
    return L->s.cached_tokens > 0;
}

/* Returns the tile of a passing value that precedes chunk c; -1: nothing does. */
static int tile_before(const struct lowering *L, int c)
{
    return reads_on(L) ? 0 : c - 1;
}

/* Appends the tile of a passing value that precedes chunk c. */
static void arg_before(struct lowering *L, int arg, struct value *v, int c)
{
    const int i = tile_before(L, c);
    if (i >= 0)
        arg_read(L, arg, v, i, i + 1, DEV);
}

static void get_before(struct lowering *L, struct value *v, int c)
{
    if (tile_before(L, c) >= 0)
        value_get(L, v, tile_before(L, c));
}

static void drop_before(struct lowering *L, struct value *v, int c)
{
    if (tile_before(L, c) < 0)
        return;
    value_drop(L, v, tile_before(L, c));
    if (!(L->duties & DUTY_BACKWARD) && !reads_on(L)) /* each chunk is visited once */
        value_forget(v, c - 1);
}

/* Returns the value whose tile `c` is written after chunk c of a layer. */
static struct value *after_of(struct lowering *L, const struct block *b, struct value *v)
{
    const struct recurrent_layer *layer = b->values;
    return !reads_on(L) ? v : v == &layer->state ? &recurrent_work(L)->dstate : &recurrent_work(L)->dtail;
}

/* Tells whether a visit of chunk c makes what follows the chunk, as the first visit does, and makes room for it. */
static int begins_after(struct lowering *L, const struct block *b, struct value *v, int c)
{
    if (!reads_on(L) && (c == L->n_chunks - 1 || value_where(v, c) >= 0))
        return 0;
    value_new(L, after_of(L, b, v), c);
    return 1;
}

/* Appends what begins_after made room for. */
static void arg_after(struct lowering *L, int arg, const struct block *b, struct value *v, int c)
{
    arg_write(L, arg, after_of(L, b, v), c, c + 1, DEV);
}

/* Keeps what follows chunk c. After a text it takes the place of what preceded, which the op has read. */
static void end_after(struct lowering *L, const struct block *b, struct value *v, int c)
{
    struct value *after = after_of(L, b, v);
    const enum dtype type = v->row_bytes % 4 ? BF16 : F32; /* for a copy: no number is changed */
    if (reads_on(L)) {
        lower_cast_rows(L, v, c, type, after, c, type, 1);
        value_put_home(L, v, c, c + 1, DEV);
    } else {
        value_put(L, v, c);
    }
    value_drop(L, after, c);
}

/* Computes the convolution of chunk c, and decays and strengths, from values that are on the device. */
static void convolve(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    get_before(L, &v->tail, c);
    value_new(L, &W->qkv, c);
    const int after = begins_after(L, b, &v->tail, c);
    emit_conv(L, b, OP_CONV, r1 - r0);
    arg_write(L, 0, &W->qkv, r0, r1, DEV);
    if (after)
        arg_after(L, 1, b, &v->tail, c);
    arg_read(L, 2, &v->pre, r0, r1, DEV);
    arg_param(L, 3, r->conv);
    if (r->conv_bias >= 0)
        arg_param(L, 4, r->conv_bias);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    arg_before(L, 6, &v->tail, c);
    emit_done(L, 0);
    if (after)
        end_after(L, b, &v->tail, c);
    value_new(L, &W->g, c);
    value_new(L, &W->beta, c);
    emit_decay(L, b, OP_DECAY, r1 - r0);
    arg_write(L, 0, &W->g, r0, r1, DEV);
    arg_write(L, 1, &W->beta, r0, r1, DEV);
    arg_read(L, 2, &v->ab, r0, r1, DEV);
    arg_param(L, 3, r->a_log);
    arg_param(L, 4, r->dt_bias);
    emit_done(L, 0);
}

/* Computes heads' outputs of chunk c, and their norms. */
static void scan(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    convolve(L, b, c);
    get_before(L, &v->state, c);
    value_new(L, &W->o, c);
    const int after = begins_after(L, b, &v->state, c);
    emit_scan(L, b, OP_SCAN, r1 - r0);
    arg_write(L, 0, &W->o, r0, r1, DEV);
    if (after)
        arg_after(L, 1, b, &v->state, c);
    arg_read(L, 2, &W->qkv, r0, r1, DEV);
    arg_read(L, 3, &W->g, r0, r1, DEV);
    arg_read(L, 4, &W->beta, r0, r1, DEV);
    arg_read(L, 5, &L->links, r0, r1, DEV);
    arg_before(L, 6, &v->state, c);
    if (r->skip >= 0)
        arg_param(L, 7, r->skip);
    emit_done(L, 0);
    if (after)
        end_after(L, b, &v->state, c);
    recurrent_norm(L, b, c);
}

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

/* Returns the columns of one of the maps in ab. */
static struct columns half_of(const struct lowering *L, const struct block *b, struct value *ab, int which, int64_t row)
{
    return (struct columns){ab, row, which * recurrent_of(b)->heads, L->s.key.dtype};
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
        const struct columns to = half_of(L, b, v, i, r0), from = {half, r0, 0, L->s.key.dtype};
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

static void drop_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    struct value *const used[] = {b->normed, &v->pre, &v->z, &v->ab, &W->qkv, &W->g, &W->beta, &W->o, &W->n, &L->acc};
    block_drop_stream(L, b, c);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        value_drop(L, used[i], c);
    drop_before(L, &v->state, c);
    drop_before(L, &v->tail, c);
}

static void produce_output(struct lowering *L, struct value *out, int c)
{
    const struct block *b = out->block;
    value_get(L, b->in, c);
    fetch(L, b, c);
    value_drop(L, b->normed, c);
    scan(L, b, c);
    recurrent_branch(L, b, c);
    block_add(L, b, out, &recurrent_of(b)->out, c);
    drop_chunk(L, b, c);
}

/* --- Backward --- */

static void fill(struct lowering *L, struct value *v)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = v->row_bytes;
    arg_write(L, 0, v, 0, 1, DEV);
    emit_done(L, 0);
}

/* Appends a parameter's gradient if it is trained; *accumulate: the op's flag. */
static void arg_grad_of(struct lowering *L, int arg, int param, int32_t *accumulate)
{
    if (trained(L, param))
        *accumulate = arg_grad(L, arg, param, 0, param_of(L, param)->elements);
}

/* Turns qkv, g and beta into their gradients, from that of heads' outputs. */
static void scan_backward(struct lowering *L, const struct block *b, struct value *dout, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    struct op_attrs *a = emit_scan(L, b, OP_SCAN_GRAD, r1 - r0);
    arg_update(L, 0, &W->qkv, r0, r1, DEV);
    arg_update(L, 1, &W->g, r0, r1, DEV);
    arg_update(L, 2, &W->beta, r0, r1, DEV);
    arg_update(L, 3, &W->dstate, 0, 1, DEV);
    if (r->skip >= 0)
        arg_grad_of(L, 4, r->skip, &a->scan.accumulate);
    arg_read(L, 5, dout, r0, r1, DEV);
    arg_read(L, 6, &L->links, r0, r1, DEV);
    arg_before(L, 7, &v->state, c);
    if (r->skip >= 0)
        arg_param(L, 8, r->skip);
    emit_done(L, 0);
    value_drop(L, dout, c);
}

/* Turns ab and pre into their gradients, from those of g, beta and qkv. */
static void convolve_backward(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = v->pre.tiles[c].row0, r1 = v->pre.tiles[c].row1;
    struct op_attrs *a = emit_decay(L, b, OP_DECAY_GRAD, r1 - r0);
    arg_update(L, 0, &v->ab, r0, r1, DEV);
    arg_grad_of(L, 1, r->a_log, &a->decay.accumulate);
    arg_grad_of(L, 2, r->dt_bias, &a->decay.accumulate);
    arg_read(L, 3, &W->g, r0, r1, DEV);
    arg_read(L, 4, &W->beta, r0, r1, DEV);
    arg_param(L, 5, r->a_log);
    arg_param(L, 6, r->dt_bias);
    emit_done(L, 0);
    a = emit_conv(L, b, OP_CONV_GRAD, r1 - r0);
    arg_update(L, 0, &v->pre, r0, r1, DEV);
    arg_update(L, 1, &W->dtail, 0, 1, DEV);
    arg_grad_of(L, 2, r->conv, &a->conv.accumulate);
    if (r->conv_bias >= 0)
        arg_grad_of(L, 3, r->conv_bias, &a->conv.accumulate);
    arg_read(L, 4, &W->qkv, r0, r1, DEV);
    arg_param(L, 5, r->conv);
    if (r->conv_bias >= 0)
        arg_param(L, 6, r->conv_bias);
    arg_read(L, 7, &L->links, r0, r1, DEV);
    arg_before(L, 8, &v->tail, c);
    emit_done(L, 0);
}

/* Makes the gradients of one of the first maps from dy, and adds to the gradient of its input, L->acc. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy, int c,
                           int accumulate)
{
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {w, .rows = r1 - r0, .y = {dy, r0, T}, .x = {b->normed, r0, T}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, dy, T, r0, r1);
    call.x = (struct linear_side){&L->acc, r0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

static void inputs_backward(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_layer *v = b->values;
    struct value *half = &recurrent_work(L)->half;
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    input_backward(L, b, &r->qkv, &v->pre, c, 0);
    input_backward(L, b, &r->z, &v->z, c, 1);
    if (r->b.weight < 0) {
        input_backward(L, b, &r->a, &v->ab, c, 1);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct columns to = {half, r0, 0, L->s.key.dtype}, from = half_of(L, b, &v->ab, i, r0);
        value_new(L, half, c);
        lower_columns(L, &to, &from, r1 - r0, r->heads, 0);
        input_backward(L, b, i ? &r->b : &r->a, half, c, 1);
        value_drop(L, half, c);
    }
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    struct value *df = block_gradient(L, b);
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    scan(L, b, c);
    if (df != &L->dx) {
        if (b->weights->after.kind != NORM_NONE)
            recurrent_branch(L, b, c);
        block_make_gradient(L, b, &recurrent_of(b)->out, c);
        value_drop(L, &L->acc, c);
    }
    struct value *dout = recurrent_gates_backward(L, b, df, c);
    if (df != &L->dx)
        value_drop(L, df, c);
    scan_backward(L, b, dout, c);
    convolve_backward(L, b, c);
    inputs_backward(L, b, c);
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_chunk(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    struct recurrent_work *W = recurrent_work(L);
    struct value *const passing[] = {&W->dstate, &W->dtail};
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
    if (reads_on(L))
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
    activation_of_layer(L, b, -1, &(struct activation){&v->ab, "ab", numbers_of(r), T, CHUNKS, produce_ab});
    passing_value(L, b, &v->state, "state", state_bytes(r));
    passing_value(L, b, &v->tail, "tail", tail_bytes(r, T));
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
    value_create(L, &W->dtail, "dtail", CLASS_WORK, 1, tail_bytes(r, reads_on(L) ? T : F32), 1, RES_NONE);
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
    create_home(L, b, &v->state, "state", state_bytes(r));
    create_home(L, b, &v->tail, "tail", tail_bytes(r, L->s.key.dtype));
}

static void cache_bind(struct lowering *L, const struct block *b, int end)
{
    struct recurrent_layer *v = b->values;
    value_bind_as(L, &v->state, BINDING_STATE, model_unit_of_layer(b->layer), end);
    value_bind_as(L, &v->tail, BINDING_STATE, model_unit_of_layer(b->layer), end);
}

/* Cuts the gradient of a matrix that holds several of the first maps, since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct model_linear *const parts[] = {&r->z, &r->qkv, &r->a};
    for (int i = 0; i < 3 && r->z.weight == r->qkv.weight; i++)
        n = linear_cuts(L, parts[i], 1, OF_OUTPUTS, cuts, n, max);
    return n;
}

const struct block_lowering recurrent_lowering = {.grad_cuts = grad_cuts,
                                                  .layer_values = layer_values,
                                                  .chunk_values = chunk_values,
                                                  .produce = produce_output,
                                                  .backward = backward,
                                                  .cache_create = cache_create,
                                                  .cache_bind = cache_bind};
