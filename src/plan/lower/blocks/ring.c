/* The ring: each pair of members exchanges keys and values directly, or latents that make them (latent_ring.h). At step s a rank attends
 * the keys of member (me - s). It sends the gradients of these keys and values straight back to that member.
 *
 * Source: ring attention (Liu et al. 2023). */
#include "plan/lower/blocks/ring.h"

#include "plan/lower/blocks/latent_ring.h"
#include "plan/lower/blocks/ring_parts.h"
#include "plan/lower/emit.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static void receive_keys(struct lowering *L, const struct attention_block *w, int s, struct value *k, struct value *v)
{
    struct attention_work *W = attention_work(L, w);
    ring_exchange(L, ring_all(k), ring_all(&W->ring_k), s, ring_is_attended(L, w, s), ring_attends(L, w, s), 1);
    ring_exchange(L, ring_all(v), ring_all(&W->ring_v), s, ring_is_attended(L, w, s), ring_attends(L, w, s), 1);
}

/* Receives or makes the keys and values of step s. *k, *v: this rank's own ones, replaced by those of the step. */
static void get_keys(struct lowering *L, const struct attention_block *w, int tile, int s, struct value **k, struct value **v)
{
    struct attention_work *W = attention_work(L, w);
    const int makes = ring_sends_latents(L, w);
    if (makes)
        latent_ring_expand(L, w, tile, s);
    else if (s > 0)
        receive_keys(L, w, s, *k, *v);
    if (makes || s > 0) {
        *k = &W->ring_k;
        *v = &W->ring_v;
    }
}

void ring_forward(struct lowering *L, const struct forward_tile *f)
{
    struct attention_work *W = attention_work(L, f->weights);
    const struct forward_tile sum = sum_begin(L, f);
    for (int s = 0; s < L->ring; s++) {
        struct forward_tile part = sum;
        get_keys(L, f->weights, f->tile, s, &part.k, &part.v);
        if (s == 0) {
            emit_attention_forward(L, 0, &part);
            continue;
        }
        part.o = &W->o_part;
        part.lse = &W->lse_part;
        value_new(L, part.o, 0);
        value_new(L, part.lse, 0);
        emit_attention_forward(L, s, &part);
        emit_attention_merge(L, &sum);
        under_predicate(L, ring_attends(L, f->weights, s));
    }
    value_drop(L, &W->ring_k, 0);
    value_drop(L, &W->ring_v, 0);
    sum_end(L, f, &sum);
}

static void fill(struct lowering *L, struct value *v)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = v->rows * v->row_bytes;
    arg_write(L, 0, v, 0, v->rows, DEV);
    emit_done(L, 0);
}

static void add_returned(struct lowering *L, const struct backward_tile *b, int s)
{
    const struct attention_block *w = b->weights;
    struct attention_work *W = attention_work(L, w);
    ring_add(L, ring_all(b->dk), ring_all(&W->returned_k[s % 2]), ring_is_attended(L, w, s));
    ring_add(L, ring_all(b->dv), ring_all(&W->returned_v[s % 2]), ring_is_attended(L, w, s));
}

/* Runs the rank's own block of keys last: its computation hides the last gradients that travel back. Gradients received from
 * others are added one step late, so that compute does not wait for them. */
static void backward_keys(struct lowering *L, const struct backward_tile *b)
{
    const struct attention_block *w = b->weights;
    struct attention_work *W = attention_work(L, w);
    int R = L->ring;
    struct backward_tile far = *b, near = *b;
    far.k = &W->ring_k;
    far.v = &W->ring_v;
    far.dk = &W->dk_part;
    far.dv = &W->dv_part;
    near.dq = far.dq = &W->dq_part;
    fill(L, b->dq);
    fill(L, b->dk);
    fill(L, b->dv);
    for (int s = 1; s < R; s++) {
        receive_keys(L, w, s, b->k, b->v);
        value_new(L, far.dq, 0);
        value_new(L, far.dk, 0);
        value_new(L, far.dv, 0);
        emit_attention_backward(L, s, &far, 0);
        ring_add(L, ring_all(b->dq), ring_all(far.dq), ring_attends(L, w, s));
        ring_exchange(L, ring_all(far.dk), ring_all(&W->returned_k[s % 2]), -s, ring_attends(L, w, s), ring_is_attended(L, w, s),
                      0);
        ring_exchange(L, ring_all(far.dv), ring_all(&W->returned_v[s % 2]), -s, ring_attends(L, w, s), ring_is_attended(L, w, s),
                      0);
        value_drop(L, far.dk, 0);
        value_drop(L, far.dv, 0);
        if (s > 1)
            add_returned(L, b, s - 1);
    }
    value_new(L, near.dq, 0);
    emit_attention_backward(L, 0, &near, 1);
    ring_add(L, ring_all(b->dq), ring_all(near.dq), 0);
    add_returned(L, b, R - 1);
}

/* Makes gradients of latents out of those of keys and values, which stay here. */
static void backward_latents(struct lowering *L, const struct backward_tile *b)
{
    const struct attention_block *w = b->weights;
    struct attention_work *W = attention_work(L, w);
    for (int s = 0; s < L->ring; s++) {
        struct backward_tile part = *b;
        get_keys(L, w, b->tile, s, &part.k, &part.v);
        part.dk = &W->dk_part;
        part.dv = &W->dv_part;
        value_new(L, part.dk, 0);
        value_new(L, part.dv, 0);
        if (s > 0) {
            part.dq = &W->dq_part;
            value_new(L, part.dq, 0);
        }
        emit_attention_backward(L, s, &part, 0);
        if (s > 0)
            ring_add(L, ring_all(b->dq), ring_all(part.dq), ring_attends(L, w, s));
        latent_ring_gradients(L, w, b->tile, s);
    }
}

void ring_backward(struct lowering *L, const struct backward_tile *b)
{
    if (ring_sends_latents(L, b->weights))
        backward_latents(L, b);
    else
        backward_keys(L, b);
}

void ring_values_create(struct lowering *L, struct attention_work *W)
{
    const struct head_tiles *h = W->heads;
    int64_t size = dtype_size(L->s.key.dtype), q = h->q * h->dim, k = h->kv * h->dim, v = h->kv * h->value;
    heads_value(L, W, &W->ring_k, "ring.k", k * size);
    heads_value(L, W, &W->ring_v, "ring.v", v * size);
    heads_value(L, W, &W->o_part, "ring.o_part", h->q * h->value * 4);
    lse_part_value(L, W, "ring.lse_part");
    heads_value(L, W, &W->dq_part, "ring.dq_part", q * 4);
    heads_value(L, W, &W->dk_part, "ring.dk_part", k * 4);
    heads_value(L, W, &W->dv_part, "ring.dv_part", v * 4);
    for (int i = 0; i < 2; i++) {
        heads_value(L, W, &W->returned_k[i], i ? "ring.dk_returned'" : "ring.dk_returned", k * 4);
        heads_value(L, W, &W->returned_v[i], i ? "ring.dv_returned'" : "ring.dv_returned", v * 4);
    }
}
