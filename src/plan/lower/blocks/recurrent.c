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

/* Computes pre map by map. */
static void join_pre(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    struct value *part = &recurrent_work(L)->part;
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    const struct model_linear *w;
    int64_t first;
    value_new(L, v, c);
    for (int i = 0; (w = recurrent_input_map(recurrent_of(b), i, &first)); i++) {
        const struct linear_side y = {part, r0, T, part->row_bytes / dtype_size(T)};
        value_new(L, part, c);
        lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = y, .x = {b->normed, r0, T}});
        lower_bias_of(L, w, &y, r1 - r0);
        lower_columns(L, &(struct columns){v, r0, first, T}, &(struct columns){part, r0, 0, T}, r1 - r0, w->out, i > 0);
        value_drop(L, part, c);
    }
}

static void produce_pre(struct lowering *L, struct value *v, int c)
{
    block_norm(L, v->block, c);
    if (recurrent_of(v->block)->second.weight < 0)
        apply(L, v->block, &recurrent_of(v->block)->qkv, v, c);
    else
        join_pre(L, v, c);
}

/* Applies z or a to its narrow input, or to the block's if it has none. */
static void apply_to(struct lowering *L, const struct block *b, const struct model_linear *w, const struct model_linear *low,
                     struct linear_side y, int c)
{
    const int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    struct value *narrow = &recurrent_work(L)->low;
    struct linear_call call = {w, .rows = r1 - r0, .y = y, .x = {b->normed, r0, T}};
    if (low && low->weight >= 0) {
        recurrent_low(L, b, low, c);
        call.x = (struct linear_side){narrow, r0, T, narrow->row_bytes / dtype_size(T)};
    }
    lower_linear(L, &call);
    lower_bias_of(L, w, &y, r1 - r0);
    if (low && low->weight >= 0)
        value_drop(L, narrow, c);
}

static void produce_z(struct lowering *L, struct value *v, int c)
{
    const struct recurrent_block *r = recurrent_of(v->block);
    block_norm(L, v->block, c);
    value_new(L, v, c);
    apply_to(L, v->block, &r->z, &r->z_low, (struct linear_side){v, v->tiles[c].row0, L->s.key.dtype}, c);
}

static void produce_ab(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct recurrent_block *r = recurrent_of(b);
    const struct model_linear *maps[] = {&r->a, &r->b};
    struct value *half = &recurrent_work(L)->half;
    const int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    const enum dtype T = L->s.key.dtype;
    block_norm(L, b, c);
    value_new(L, v, c);
    if (r->b.weight < 0) {
        apply_to(L, b, maps[0], &r->a_low, (struct linear_side){v, r0, T}, c);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct columns to = recurrent_half(L, b, v, i, r0), from = {half, r0, 0, T};
        value_new(L, half, c);
        apply_to(L, b, maps[i], i ? NULL : &r->a_low, (struct linear_side){half, r0, T, half->row_bytes / dtype_size(T)}, c);
        lower_columns(L, &to, &from, r1 - r0, maps[i]->out, i > 0);
        value_drop(L, half, c);
    }
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    value_get(L, &v->pre, c);
    value_get(L, &v->z, c);
    recurrent_get_numbers(L, b, c);
}

static void forward(struct lowering *L, struct block *b)
{
    struct recurrent_layer *v = b->values;
    passing_enter(L, &v->state);
    passing_enter(L, &v->tail);
    recurrent_ranks_forward(L, b);
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

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const struct convolution k = recurrent_convolution(recurrent_of(b));
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    fetch(L, b, c);
    struct value *dout = recurrent_outputs_backward(L, b, c);
    recurrent_scan_backward(L, b, dout, &W->dstate, 0, 1, c);
    recurrent_decay_backward(L, b, c);
    convolution_backward(L, &k, &v->pre, &W->qkv, &W->dtail, 0, &v->tail, c);
    recurrent_inputs_backward(L, b, &(struct recurrent_gradients){&v->pre, &v->z, &v->ab}, c);
    block_norm_backward(L, b, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    recurrent_drop(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    struct recurrent_work *W = recurrent_work(L);
    struct recurrent_layer *v = b->values;
    if (passing_is_shared(L)) {
        recurrent_ranks_backward(L, b);
        return;
    }
    passing_enter_gradient(L, &v->state, &W->dstate);
    passing_enter_gradient(L, &v->tail, &W->dtail);
    for (int c = L->n_chunks - 1; c >= 0; c--)
        backward_chunk(L, b, c);
    passing_leave_gradient(L, &v->state, &W->dstate);
    passing_leave_gradient(L, &v->tail, &W->dtail);
}

/* --- Creation --- */

static int64_t state_bytes(const struct recurrent_block *r)
{
    return r->heads * r->key_dim * r->value_dim * 4;
}

static void layer_values(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct convolution k = recurrent_convolution(r);
    const enum dtype T = L->s.key.dtype;
    struct recurrent_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    if (!v)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&v->pre, "pre", r->channels, T, CHUNKS, produce_pre});
    activation_of_layer(L, b, -1, &(struct activation){&v->z, "z", recurrent_values(r), T, CHUNKS, produce_z});
    if (recurrent_numbers(r) > 0)
        activation_of_layer(L, b, -1, &(struct activation){&v->ab, "ab", recurrent_numbers(r), T, CHUNKS, produce_ab});
    passing_create(L, b, &v->state, "state", state_bytes(r));
    passing_create(L, b, &v->tail, "tail", convolution_tail(&k, T));
    if (passing_is_shared(L))
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

static int64_t widest_part(const struct recurrent_block *r)
{
    const struct model_linear *w;
    int64_t first, most = 0;
    for (int i = 0; (w = recurrent_input_map(r, i, &first)); i++)
        most = max_i64(most, w->out);
    return most;
}

static void chunk_values(struct lowering *L)
{
    struct recurrent_work *W = L->shared[BLOCK_RECURRENT] = memory_new(L, 1, sizeof *W);
    const struct recurrent_block *r = first_of(L->m);
    const struct convolution k = recurrent_convolution(r);
    const int64_t values = recurrent_values(r);
    const enum dtype T = L->s.key.dtype;
    if (!W)
        return;
    const struct activation all[] = {{&W->half, "half", max_i64(r->a.out, r->heads), T, CHUNKS},
                                     {&W->qkv, "qkv", r->channels, T, CHUNKS},
                                     {&W->g, "g", r->heads * recurrent_decays(r), F32, CHUNKS},
                                     {&W->beta, "beta", r->heads, F32, CHUNKS},
                                     {&W->o, "o", values, T, CHUNKS},
                                     {&W->n, "no", values, T, CHUNKS},
                                     {&W->y, "y", values, T, CHUNKS},
                                     {&W->dn, "dno", values, F32, CHUNKS},
                                     {&W->dout, "do", values, T, CHUNKS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        activation_of_work(L, RES_NONE, -1, &all[i]);
    const struct activation low[] = {{&W->low, "low", recurrent_narrow(r), T, CHUNKS},
                                     {&W->dlow, "dlow", recurrent_narrow(r), F32, CHUNKS}};
    for (int i = 0; i < 2 && recurrent_narrow(r) > 0; i++)
        activation_of_work(L, RES_NONE, -1, &low[i]);
    if (r->second.weight >= 0)
        activation_of_work(L, RES_NONE, -1, &(struct activation){&W->part, "pre.part", widest_part(r), T, CHUNKS});
    value_create(L, &W->dstate, "dstate", CLASS_WORK, 1, state_bytes(r), 1, RES_NONE);
    if (k.width > 1)
        value_create(L, &W->dtail, "dtail", CLASS_WORK, 1, convolution_tail(&k, passing_reads_on(L) ? T : F32), 1, RES_NONE);
    if (passing_is_shared(L))
        recurrent_ranks_create(L, r);
}

static void cache_create(struct lowering *L, struct block *b)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct convolution k = recurrent_convolution(r);
    struct recurrent_layer *v = b->values = memory_new(L, 1, sizeof *v);
    if (!v)
        return;
    passing_create_home(L, b, &v->state, "state", state_bytes(r));
    passing_create_home(L, b, &v->tail, "tail", convolution_tail(&k, L->s.key.dtype));
}

static void cache_bind(struct lowering *L, const struct block *b, int end)
{
    struct recurrent_layer *v = b->values;
    passing_bind(L, b, &v->state, end);
    passing_bind(L, b, &v->tail, end);
}

static void carry_create(struct lowering *L, struct block *b, int gradients)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct convolution k = recurrent_convolution(r);
    struct recurrent_layer *v = b->values ? b->values : (b->values = memory_new(L, 1, sizeof *v));
    if (!v)
        return;
    passing_create_carry(L, b, &v->state, "state", state_bytes(r), gradients);
    passing_create_carry(L, b, &v->tail, "tail", convolution_tail(&k, gradients ? F32 : L->s.key.dtype), gradients);
}

static void carry_bind(struct lowering *L, const struct block *b, int end)
{
    struct recurrent_layer *v = b->values;
    passing_bind_carry(L, &v->state, end);
    passing_bind_carry(L, &v->tail, end);
}

/* Cuts the gradient of a matrix that holds several of the first maps, since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct recurrent_block *r = recurrent_of(b);
    const struct model_linear *const maps[] = {&r->z, &r->qkv, &r->second, &r->third, &r->a, &r->b, &r->z_low, &r->a_low};
    enum { MAPS = sizeof maps / sizeof *maps };
    for (int i = 0; i < MAPS; i++) {
        int others = 0;
        for (int k = 0; k < MAPS; k++)
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
                                                  .forward = forward,
                                                  .backward = backward,
                                                  .cache_create = cache_create,
                                                  .cache_bind = cache_bind,
                                                  .carry_create = carry_create,
                                                  .carry_bind = carry_bind};
