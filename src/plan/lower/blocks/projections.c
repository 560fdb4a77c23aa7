#include "plan/lower/blocks/projections.h"

#include "plan/lower/blocks/gates.h"
#include "plan/lower/blocks/latent.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static const struct head_tiles *heads_at(const struct lowering *L, const struct block *b)
{
    return heads_of(L, &b->weights->attention);
}

static struct attention_work *work_of(const struct lowering *L, const struct block *b)
{
    return attention_work(L, &b->weights->attention);
}

/* --- Which heads --- */

/* Returns the first query head (routed_kv_head: KV head) of the model that ulysses member m attends in its tile t (KV tile kt). */
static int64_t routed_head(const struct head_tiles *h, int m, int t)
{
    return m * h->heads + t * h->q;
}

static int64_t routed_kv_head(const struct lowering *L, const struct head_tiles *h, int m, int kt)
{
    int64_t kv = h->all_kv; /* with fewer KV heads than members, neighbours share one */
    return kv >= L->ulysses ? m * h->kv_heads + kt * h->kv : m * kv / L->ulysses;
}

/* Tells whether member m's KV tiles are the same heads as those of the member before it. */
static int kv_replica(const struct lowering *L, const struct head_tiles *h, int m)
{
    return m > 0 && routed_kv_head(L, h, m, 0) == routed_kv_head(L, h, m - 1, 0);
}

/* Returns the part of query projection w for tile t of ulysses member m (kv_slice: of key or value projection w for KV tile kt). */
static struct model_linear q_slice(const struct head_tiles *h, const struct model_linear *w, int m, int t)
{
    return linear_outputs(w, routed_head(h, m, t) * h->dim, h->q * h->dim);
}

static struct model_linear kv_slice(const struct lowering *L, const struct head_tiles *h, const struct model_linear *w, int m,
                                    int kt)
{
    return linear_outputs(w, routed_kv_head(L, h, m, kt) * h->dim, h->kv * h->dim);
}

/* --- Forward --- */

/* Copies a KV head from the tiles of the previous ulysses member: both members attend with the same head. */
static void produce_replica(struct lowering *L, struct value *v, int i)
{
    const struct tile *t = &v->tiles[i], *from = &v->tiles[i - L->n_chunks];
    value_new(L, v, i);
    struct op_attrs *a = emit(L, OP_CAST, LANE_COMPUTE);
    a->cast.n = (t->row1 - t->row0) * v->row_bytes / dtype_size(L->s.key.dtype);
    a->cast.y_type = a->cast.x_type = (int32_t)L->s.key.dtype;
    arg_write(L, 0, v, t->row0, t->row1, DEV);
    arg_read(L, 1, v, from->row0, from->row1, DEV);
    emit_done(L, 0);
}

/* Computes rows [r0, r1) of y from the normalised chunk c, bias included. */
static void apply(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *y, int64_t r0,
                  int64_t r1, int c)
{
    enum dtype T = L->s.key.dtype;
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {y, r0, T}, .x = {b->normed, b->normed->tiles[c].row0, T}});
    lower_bias(L, w, y, r0, r1);
}

/* Steps that follow the projection of q, k or v. */
struct after {
    const struct model_norm *norm; /* NORM_NONE: none */
    int rope;                      /* index of the model's set of frequencies; -1: no rope */
    struct value *raw, *draw;      /* chunks before the norm, and the gradients of these chunks */
    struct value *all; /* chunks after a norm of all heads together; NULL: each head is normalised by itself, or none is */
    const struct model_linear *whole; /* the map of all heads */
    int queries;
    int norm_last; /* 1: the norm follows the rotation, so that raw is rotated */
};

static struct after after_q(const struct lowering *L, const struct block *b)
{
    const struct attention_block *w = &b->weights->attention;
    struct attention_work *W = attention_work(L, w);
    return (struct after){&w->q_norm, w->rope, &W->raw_q, &W->draw_q, w->whole ? &W->all_q : NULL, &w->q, 1, w->norm_last};
}

static struct after after_k(const struct lowering *L, const struct block *b)
{
    const struct attention_block *w = &b->weights->attention;
    struct attention_work *W = attention_work(L, w);
    return (struct after){&w->k_norm, w->rope, &W->raw_k, &W->draw_k, w->whole ? &W->all_k : NULL, &w->k, 0, w->norm_last};
}

/* Returns steps for a map with neither norm nor rope behind it. */
static struct after plain(void)
{
    static const struct model_norm none = {.kind = NORM_NONE, .weight = -1, .bias = -1};
    return (struct after){&none, -1, NULL, NULL, NULL, NULL, 0, 0};
}

/* Returns the steps of v. Normalised values use the buffers of keys, which are free again by then. */
static struct after after_v(const struct lowering *L, const struct block *b)
{
    const struct attention_block *w = &b->weights->attention;
    struct attention_work *W = attention_work(L, w);
    return (struct after){&w->v_norm, -1, &W->raw_k, &W->draw_k, NULL, &w->v, 0, 0};
}

/* Returns the range of heads that w, a map to some of the heads, makes. */
static struct heads heads_in(const struct head_tiles *h, const struct after *after, const struct model_linear *w)
{
    return (struct heads){(w->first_out - after->whole->first_out) / h->dim, w->out / h->dim, h->dim};
}

/* Rotates rows [r0, r1) of the map's outputs, for tokens from p0 on. inverse: rotates the outputs' gradient back. */
static void rotate(struct lowering *L, const struct block *b, const struct after *after, const struct model_linear *w,
                   enum dtype type, int inverse, struct value *x, int64_t r0, int64_t r1, int64_t p0)
{
    lower_rope(L, &(struct rotation){after->rope, w->out / heads_at(L, b)->dim, type, after->queries, inverse}, x, r0, r1, p0);
}

/* Normalises all heads of chunk c together, unless that is done already. */
static void norm_all(struct lowering *L, const struct block *b, const struct after *after, int c)
{
    int64_t x0 = b->normed->tiles[c].row0, x1 = b->normed->tiles[c].row1;
    if (value_on_device(after->all, c))
        return;
    value_new(L, after->raw, c);
    apply(L, b, after->whole, after->raw, x0, x1, c);
    value_new(L, after->all, c);
    lower_head_norm_forward(L, after->norm, after->all, x0, after->raw, x0, x1 - x0, (struct heads){0, 0, 0});
    value_drop(L, after->raw, c);
}

void drop_all_heads(struct lowering *L, const struct block *b, int c)
{
    struct attention_work *W = work_of(L, b);
    if (!b->weights->attention.whole)
        return;
    value_drop(L, &W->all_q, c);
    value_drop(L, &W->all_k, c);
}

/* Computes the inputs of the norm of heads for chunk c: the map's outputs, rotated if the norm comes last. */
static void make_raw(struct lowering *L, const struct block *b, const struct model_linear *w, const struct after *after,
                     int64_t rows, int c)
{
    int64_t x0 = b->normed->tiles[c].row0;
    value_new(L, after->raw, c);
    apply(L, b, w, after->raw, x0, x0 + rows, c);
    if (after->norm_last)
        rotate(L, b, after, w, L->s.key.dtype, 0, after->raw, x0, x0 + rows, x0);
}

/* Computes one chunk of q, k or v for one member: norm, projection, norm of heads and rope (or rope first). All projections of a
 * visit share the normalised chunk. */
static void project(struct lowering *L, struct value *v, int i, const struct model_linear *w, struct after after)
{
    int c = i % L->n_chunks;
    int64_t r0 = v->tiles[i].row0, r1 = v->tiles[i].row1, x0 = v->block->normed->tiles[c].row0;
    block_norm(L, v->block, c);
    value_new(L, v, i);
    if (after.all) {
        norm_all(L, v->block, &after, c);
        lower_columns(L, &(struct columns){v, r0, 0, L->s.key.dtype},
                      &(struct columns){after.all, x0, w->first_out - after.whole->first_out, L->s.key.dtype}, r1 - r0, w->out,
                      0);
    } else if (after.norm->kind != NORM_NONE) {
        make_raw(L, v->block, w, &after, r1 - r0, c);
        lower_head_norm_forward(L, after.norm, v, r0, after.raw, x0, r1 - r0, heads_in(heads_at(L, v->block), &after, w));
        value_drop(L, after.raw, c);
    } else {
        apply(L, v->block, w, v, r0, r1, c);
    }
    if (!after.norm_last)
        rotate(L, v->block, &after, w, L->s.key.dtype, 0, v, r0, r1, x0);
}

void produce_q(struct lowering *L, struct value *v, int i)
{
    struct model_linear w = q_slice(heads_at(L, v->block), &v->block->weights->attention.q, i / L->n_chunks, v->index);
    project(L, v, i, &w, after_q(L, v->block));
}

static void produce_kv(struct lowering *L, struct value *v, int i, const struct model_linear *w, struct after after)
{
    const struct head_tiles *h = heads_at(L, v->block);
    int m = i / L->n_chunks;
    if (kv_replica(L, h, m) && value_on_device(v, i - L->n_chunks)) {
        produce_replica(L, v, i);
        return;
    }
    struct model_linear slice = kv_slice(L, h, w, m, v->index);
    project(L, v, i, &slice, after);
}

void produce_k(struct lowering *L, struct value *v, int i)
{
    produce_kv(L, v, i, &v->block->weights->attention.k, after_k(L, v->block));
}

void produce_v(struct lowering *L, struct value *v, int i)
{
    produce_kv(L, v, i, &v->block->weights->attention.v, after_v(L, v->block));
}

void produce_gate(struct lowering *L, struct value *v, int i)
{
    struct model_linear w = q_slice(heads_at(L, v->block), &v->block->weights->attention.gate, i / L->n_chunks, v->index);
    project(L, v, i, &w, plain());
}

/* Returns the inputs of the output projection: tile i of o, which is on the device, or o times its gate. */
static struct linear_side heads_out(struct lowering *L, const struct block *b, int t, int i)
{
    struct attention_layer *a = b->values;
    if (!has_gates(b))
        return (struct linear_side){&a->o[t], a->o[t].tiles[i].row0, L->s.key.dtype};
    gate_forward(L, b, t, i);
    return (struct linear_side){&work_of(L, b)->gated, b->normed->tiles[i % L->n_chunks].row0, L->s.key.dtype};
}

static void drop_gated(struct lowering *L, const struct block *b, int c)
{
    if (has_gates(b))
        value_drop(L, &work_of(L, b)->gated, c);
}

/* Computes attention's branch of chunk c for all heads, without the bias: L->acc. */
static void add_heads(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *w = &b->weights->attention.o;
    const struct head_tiles *h = heads_at(L, b);
    struct attention_layer *a = b->values;
    int64_t r0 = b->normed->tiles[c].row0, r1 = b->normed->tiles[c].row1;
    value_new(L, &L->acc, c);
    for (int t = 0; t < h->n_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            struct value *o = &a->o[t];
            int i = m * L->n_chunks + c;
            value_get(L, o, i);
            lower_linear(L, &(struct linear_call){w, routed_head(h, m, t) * h->value, h->q * h->value, r1 - r0,
                                                  .y = {&L->acc, r0, F32}, .x = heads_out(L, b, t, i), .accumulate = t + m > 0});
            drop_gated(L, b, c);
            value_drop(L, o, i);
        }
}

void produce_attended(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct model_linear *w = &b->weights->attention.o;
    add_heads(L, b, c);
    gates_leave_input(L, b, c);
    value_get(L, b->in, c);
    block_add(L, b, v, w, c);
    value_drop(L, &L->acc, c);
}

/* --- Backward --- */

void attended_gradient(struct lowering *L, const struct block *b, int c)
{
    value_get(L, &L->dx, c);
    if (b->weights->after.kind != NORM_NONE) {
        add_heads(L, b, c);
        gates_leave_input(L, b, c);
    }
    block_make_gradient(L, b, &b->weights->attention.o, c);
    value_put(L, &L->df, c);
    value_drop(L, &L->df, c);
    value_drop(L, &L->acc, c);
    value_drop(L, &L->dx, c);
}

void share_gradient(struct lowering *L, const struct block *b, int c)
{
    struct value *own = block_gradient(L, b);
    value_get(L, own, c);
    block_gather_gradient(L, b, block_gradient(L, b), c);
    lower_bias_grad(L, &b->weights->attention.o, own, L->s.key.dtype, own->tiles[c].row0, own->tiles[c].row1);
    value_put(L, &L->all_dx, c);
    value_drop(L, &L->all_dx, c);
    value_drop(L, own, c);
}

/* Computes the gradient of tile i of o from the gradient of the block's branch; with gates, by way of W->gated. */
static void map_backward(struct lowering *L, const struct block *b, int m, int t, int c)
{
    struct attention_layer *kept = b->values;
    struct attention_work *W = work_of(L, b);
    struct value *o = &kept->o[t], *d_o = &W->d_o[t], *df = block_whole_gradient(L, b, block_gradient(L, b));
    int i = m * L->n_chunks + c, gates = has_gates(b);
    const struct head_tiles *h = heads_at(L, b);
    int64_t r0 = o->tiles[i].row0, x0 = df->tiles[c].row0;
    struct linear_side back =
        gates ? (struct linear_side){&W->gated, x0, L->s.key.dtype} : (struct linear_side){d_o, r0, L->s.key.dtype};
    value_new(L, back.value, gates ? c : i);
    struct linear_call call = {&b->weights->attention.o, routed_head(h, m, t) * h->value, h->q * h->value,
                               o->tiles[i].row1 - r0,    .y = {df, x0, L->s.key.dtype},   .x = back};
    lower_linear_dx(L, &call);
    if (gates)
        gate_backward(L, b, t, i);
    else
        call.x.value = o;
    lower_linear_dw(L, &call);
    drop_gated(L, b, c);
}

void output_backward(struct lowering *L, const struct block *b, int t, int c)
{
    const struct model_linear *w = &b->weights->attention.o;
    const struct head_tiles *h = heads_at(L, b);
    struct attention_layer *kept = b->values;
    struct attention_work *W = work_of(L, b);
    enum dtype T = L->s.key.dtype;
    struct value *o = &kept->o[t], *d_o = &W->d_o[t], *delta = &W->delta[t],
                 *df = block_whole_gradient(L, b, block_gradient(L, b));
    int64_t x0 = df->tiles[c].row0, x1 = df->tiles[c].row1;
    value_get(L, df, c);
    for (int m = 0; m < L->ulysses; m++) {
        int i = m * L->n_chunks + c;
        int64_t r0 = o->tiles[i].row0, r1 = o->tiles[i].row1;
        value_get(L, o, i);
        map_backward(L, b, m, t, c);
        value_new(L, delta, i);
        struct op_attrs *a = emit(L, OP_ATTN_DELTA, LANE_COMPUTE);
        a->heads.rows = r1 - r0;
        a->heads.heads = h->q;
        a->heads.head_dim = (int32_t)h->value;
        a->heads.dtype = (int32_t)T;
        arg_write(L, 0, delta, r0, r1, DEV);
        arg_read(L, 1, o, r0, r1, DEV);
        arg_read(L, 2, d_o, r0, r1, DEV);
        emit_done(L, 0);
        value_drop(L, o, i);
    }
    if (t == 0 && L->tp == 1)
        lower_bias_grad(L, w, df, T, x0, x1);
    value_drop(L, df, c);
    gates_leave_input(L, b, c);
}

/* Computes the gradient of the raw heads (before their norm) of chunk c from rows [r0, r1) of dy, the gradient of the normalised
 * heads. The raw heads are computed again. */
static void head_norm_backward(struct lowering *L, const struct block *b, const struct model_linear *w, const struct after *after,
                               struct value *dy, enum dtype dy_type, int64_t r0, int64_t r1, int c)
{
    const struct heads heads = heads_in(heads_at(L, b), after, w);
    struct attention_work *W = work_of(L, b);
    int64_t x0 = b->normed->tiles[c].row0, rows = r1 - r0;
    make_raw(L, b, w, after, rows, c);
    value_new(L, after->draw, c);
    if (dy_type == F32) {
        lower_head_norm_backward(L, after->norm, after->draw, after->raw, x0, dy, r0, rows, heads);
    } else {
        value_new(L, &W->dnormed_q, c);
        lower_cast_rows(L, &W->dnormed_q, x0, F32, dy, r0, dy_type, rows);
        lower_head_norm_backward(L, after->norm, after->draw, after->raw, x0, &W->dnormed_q, x0, rows, heads);
        value_drop(L, &W->dnormed_q, c);
    }
    value_drop(L, after->raw, c);
    if (after->norm_last)
        rotate(L, b, after, w, L->s.key.dtype, 1, after->draw, x0, x0 + rows, x0);
}

/* Adds one member's heads of a tile to the gradients of the map and of the block's input, chunk c. */
static void projection_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy,
                                enum dtype dy_type, int i, struct after after, int accumulate)
{
    int64_t r0 = dy->tiles[i].row0, r1 = dy->tiles[i].row1;
    int c = i % L->n_chunks, normed = after.norm->kind != NORM_NONE;
    struct tile *chunk = &b->normed->tiles[c];
    struct linear_side side = {dy, r0, dy_type};
    value_get(L, dy, i);
    if (!after.norm_last)
        rotate(L, b, &after, w, dy_type, 1, dy, r0, r1, chunk->row0);
    if (normed) {
        head_norm_backward(L, b, w, &after, dy, dy_type, r0, r1, c);
        side = (struct linear_side){after.draw, chunk->row0, L->s.key.dtype};
    }
    struct linear_call call = {w, .rows = r1 - r0, .y = side, .x = {b->normed, chunk->row0, L->s.key.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, side.value, side.type, side.row, side.row + r1 - r0);
    call.x = (struct linear_side){&L->acc, chunk->row0, F32};
    call.accumulate = accumulate;
    if (block_passes_gradient(L, b))
        lower_linear_dx(L, &call);
    if (normed)
        value_drop(L, after.draw, c);
    value_drop(L, dy, i);
}

/* Adds gradients of a shared KV head: those of the members after m that share member m's head, to member m's own. */
static void add_replicas(struct lowering *L, const struct head_tiles *h, struct value *dy, int m, int c)
{
    int first = m * L->n_chunks + c;
    struct tile *sum = &dy->tiles[first];
    for (int other = m + 1; other < L->ulysses && kv_replica(L, h, other); other++) {
        int i = other * L->n_chunks + c;
        value_get(L, dy, first);
        value_get(L, dy, i);
        struct op_attrs *a = emit(L, OP_ACCUM, LANE_COMPUTE);
        a->vec.n = (sum->row1 - sum->row0) * dy->row_bytes / 4;
        arg_update(L, 0, dy, sum->row0, sum->row1, DEV);
        arg_read(L, 1, dy, dy->tiles[i].row0, dy->tiles[i].row1, DEV);
        emit_done(L, 0);
        value_drop(L, dy, i);
    }
}

/* Computes the gradients of a map whose heads are normalised all together, from the tiles' gradients as gather_gradient collects
 * them. */
static void all_backward(struct lowering *L, const struct block *b, const struct after *after, int c, int accumulate)
{
    struct attention_work *W = work_of(L, b);
    int64_t x0 = b->normed->tiles[c].row0, x1 = b->normed->tiles[c].row1;
    struct value *dall = after->whole == &b->weights->attention.q ? &W->dall_q : &W->dall_k;
    value_new(L, after->raw, c);
    apply(L, b, after->whole, after->raw, x0, x1, c);
    value_new(L, after->draw, c);
    lower_head_norm_backward(L, after->norm, after->draw, after->raw, x0, dall, x0, x1 - x0, (struct heads){0, 0, 0});
    value_drop(L, after->raw, c);
    value_drop(L, dall, c);
    struct linear_call call = {after->whole, .rows = x1 - x0, .y = {after->draw, x0, L->s.key.dtype},
                               .x = {b->normed, x0, L->s.key.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, after->whole, after->draw, L->s.key.dtype, x0, x1);
    call.x = (struct linear_side){&L->acc, x0, F32};
    call.accumulate = accumulate;
    if (block_passes_gradient(L, b))
        lower_linear_dx(L, &call);
    value_drop(L, after->draw, c);
}

/* Rotates one tile's gradient back and writes it to the tile's columns in the gradient of all heads. keep: other columns are
 * there already. */
static void gather_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy,
                            enum dtype dy_type, int i, const struct after *after, struct value *dall, int keep)
{
    int c = i % L->n_chunks;
    int64_t r0 = dy->tiles[i].row0, r1 = dy->tiles[i].row1, x0 = b->normed->tiles[c].row0;
    value_get(L, dy, i);
    rotate(L, b, after, w, dy_type, 1, dy, r0, r1, x0);
    if (!keep)
        value_new(L, dall, c);
    lower_columns(L, &(struct columns){dall, x0, w->first_out - after->whole->first_out, F32},
                  &(struct columns){dy, r0, 0, dy_type}, r1 - r0, w->out, keep);
    value_drop(L, dy, i);
}

static void query_backward(struct lowering *L, const struct block *b, int m, int t, int c)
{
    struct attention_work *W = work_of(L, b);
    struct model_linear w = q_slice(heads_at(L, b), &b->weights->attention.q, m, t);
    struct after after = after_q(L, b);
    if (after.all)
        gather_gradient(L, b, &w, &W->dq[t], dq_type(L), m * L->n_chunks + c, &after, &W->dall_q, t + m > 0);
    else
        projection_backward(L, b, &w, &W->dq[t], dq_type(L), m * L->n_chunks + c, after, t + m > 0);
}

static void key_backward(struct lowering *L, const struct block *b, int m, int kt, int c)
{
    const struct head_tiles *h = heads_at(L, b);
    struct attention_work *W = work_of(L, b);
    struct model_linear w = kv_slice(L, h, &b->weights->attention.k, m, kt);
    struct after after = after_k(L, b);
    add_replicas(L, h, &W->dk[kt], m, c);
    if (after.all)
        gather_gradient(L, b, &w, &W->dk[kt], F32, m * L->n_chunks + c, &after, &W->dall_k, kt + m > 0);
    else
        projection_backward(L, b, &w, &W->dk[kt], F32, m * L->n_chunks + c, after, 1);
}

static void gates_backward(struct lowering *L, const struct block *b, int c)
{
    struct attention_work *W = work_of(L, b);
    for (int t = 0; has_gates(b) && t < heads_at(L, b)->n_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            struct model_linear w = q_slice(heads_at(L, b), &b->weights->attention.gate, m, t);
            projection_backward(L, b, &w, &W->dgate[t], L->s.key.dtype, m * L->n_chunks + c, plain(), 1);
        }
}

/* Computes the gradients of all maps to heads, and of their input: L->acc. */
static void maps_backward(struct lowering *L, const struct block *b, int c)
{
    const struct head_tiles *h = heads_at(L, b);
    struct attention_work *W = work_of(L, b);
    struct after q = after_q(L, b), k = after_k(L, b);
    for (int t = 0; t < h->n_q; t++)
        for (int m = 0; m < L->ulysses; m++)
            query_backward(L, b, m, t, c);
    if (q.all)
        all_backward(L, b, &q, c, 0);
    gates_backward(L, b, c);
    for (int kt = 0; kt < h->n_kv; kt++)
        for (int m = 0; m < L->ulysses; m++) {
            if (kv_replica(L, h, m))
                continue;
            struct model_linear v = kv_slice(L, h, &b->weights->attention.v, m, kt);
            key_backward(L, b, m, kt, c);
            add_replicas(L, h, &W->dv[kt], m, c);
            projection_backward(L, b, &v, &W->dv[kt], F32, m * L->n_chunks + c, after_v(L, b), 1);
        }
    if (k.all)
        all_backward(L, b, &k, c, 1);
}

void qkv_backward(struct lowering *L, const struct block *b, int c)
{
    value_get(L, b->source, c);
    block_norm(L, b, c);
    if (block_passes_gradient(L, b))
        value_new(L, &L->acc, c);
    if (attends_latents(&b->weights->attention))
        latent_gradients(L, b, c);
    else
        maps_backward(L, b, c);
    value_drop(L, b->normed, c);
    if (block_passes_gradient(L, b)) {
        value_get(L, &L->dx, c);
        block_norm_backward(L, b, c);
        value_put(L, &L->dx, c);
        value_drop(L, &L->dx, c);
    }
    value_drop(L, &L->acc, c);
    value_drop(L, b->source, c);
}

/* Cuts the gradient of a norm that has different weights for each head: this gradient is written tile by tile. */
static int norm_cuts(const struct lowering *L, const struct model_norm *norm, int parts, int64_t *cuts, int n, int max)
{
    const struct model_param *p = norm->weight >= 0 ? param_of(L, norm->weight) : NULL;
    for (int i = 0; p && p->shape[1] && i < parts && n < max; i++)
        cuts[n++] = p->offset + i * (p->elements / parts);
    return n;
}

int projections_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct head_tiles *h = heads_at(L, b);
    int q_parts = (int)(h->all / h->q), kv_parts = (int)(h->all_kv / h->kv);
    n = norm_cuts(L, &b->weights->attention.q_norm, q_parts, cuts, n, max);
    n = norm_cuts(L, &b->weights->attention.k_norm, kv_parts, cuts, n, max);
    n = linear_cuts(L, &b->weights->attention.q, q_parts, OF_OUTPUTS, cuts, n, max);
    if (has_gates(b))
        n = linear_cuts(L, &b->weights->attention.gate, q_parts, OF_OUTPUTS, cuts, n, max);
    if (attends_latents(&b->weights->attention))
        n = latent_grad_cuts(L, b, cuts, n, max);
    n = linear_cuts(L, &b->weights->attention.k, kv_parts, OF_OUTPUTS, cuts, n, max);
    n = linear_cuts(L, &b->weights->attention.v, kv_parts, OF_OUTPUTS, cuts, n, max);
    return linear_cuts(L, &b->weights->attention.o, q_parts, OF_INPUTS, cuts, n, max);
}
