#include "plan/lower/blocks/projections.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* --- Which heads --- */

/* Heads and KV heads (of the model) that ulysses member m attends in its tile t, kt. */
static int64_t routed_head(const struct lowering *L, int m, int t)
{
    return m * L->local_heads + t * L->s.head_tile;
}

static int64_t routed_kv_head(const struct lowering *L, int m, int kt)
{
    int64_t kv = L->m->config.kv_heads; /* with fewer of them than members, neighbours share one */
    return kv >= L->ulysses ? m * L->local_kv_heads + kt * L->kv_heads_tile : m * kv / L->ulysses;
}

/* Whether member m's KV tiles are the same heads as those of the member before it. */
static int kv_replica(const struct lowering *L, int m)
{
    return m > 0 && routed_kv_head(L, m, 0) == routed_kv_head(L, m - 1, 0);
}

/* The query projection of ulysses member m's tile t; the key or value projection w of its KV tile kt. */
static struct model_linear q_slice(const struct lowering *L, const struct model_linear *w, int m, int t)
{
    int64_t d = L->m->config.head_dim;
    return linear_outputs(w, routed_head(L, m, t) * d, L->s.head_tile * d);
}

static struct model_linear kv_slice(const struct lowering *L, const struct model_linear *w, int m, int kt)
{
    int64_t d = L->m->config.head_dim;
    return linear_outputs(w, routed_kv_head(L, m, kt) * d, L->kv_heads_tile * d);
}

/* --- Forward --- */

/* The same KV head for one member more of the ulysses group. */
static void produce_replica(struct lowering *L, struct value *v, int i)
{
    const struct tile *t = &v->tiles[i], *from = &v->tiles[i - L->n_chunks];
    value_new(L, v, i);
    struct op_attrs *a = emit(L, OP_CAST, LANE_COMPUTE);
    a->cast.n = (t->row1 - t->row0) * v->row_bytes / dtype_size(L->s.dtype);
    a->cast.y_type = a->cast.x_type = (int32_t)L->s.dtype;
    arg_write(L, 0, v, t->row0, t->row1, DEV);
    arg_read(L, 1, v, from->row0, from->row1, DEV);
    emit_done(L, 0);
}

/* One chunk of q, k or v for one member: norm, projection, rope. The normalised chunk is shared by what a visit computes. */
static void project(struct lowering *L, struct value *v, int i, const struct model_linear *w, int rotated)
{
    int c = i % L->n_chunks;
    int64_t r0 = v->tiles[i].row0, r1 = v->tiles[i].row1, x0 = v->block->in->tiles[c].row0;
    enum dtype T = L->s.dtype;
    struct value *normed = v->block->normed;
    block_norm(L, v->block, c);
    value_new(L, v, i);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, T}, .x = {normed, x0, T}});
    lower_bias(L, w, v, r0, r1);
    if (rotated)
        lower_rope(L, v, r0, r1, x0, (int)(w->out / L->m->config.head_dim), T, 0);
}

void produce_q(struct lowering *L, struct value *v, int i)
{
    struct model_linear w = q_slice(L, &v->block->weights->attention.q, i / L->n_chunks, v->index);
    project(L, v, i, &w, 1);
}

static void produce_kv(struct lowering *L, struct value *v, int i, const struct model_linear *w, int rotated)
{
    int m = i / L->n_chunks;
    if (kv_replica(L, m) && value_on_device(v, i - L->n_chunks)) {
        produce_replica(L, v, i);
        return;
    }
    struct model_linear slice = kv_slice(L, w, m, v->index);
    project(L, v, i, &slice, rotated);
}

void produce_k(struct lowering *L, struct value *v, int i)
{
    produce_kv(L, v, i, &v->block->weights->attention.k, 1);
}

void produce_v(struct lowering *L, struct value *v, int i)
{
    produce_kv(L, v, i, &v->block->weights->attention.v, 0);
}

void produce_attended(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct model_linear *w = &b->weights->attention.o;
    struct attention_layer *a = b->values;
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1, d = L->m->config.head_dim, width = L->s.head_tile * d;
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            struct value *o = &a->o[t];
            int i = m * L->n_chunks + c;
            value_get(L, o, i);
            lower_linear(L, &(struct linear_call){w, routed_head(L, m, t) * d, width, r1 - r0, .y = {&L->acc, r0, F32},
                                                  .x = {o, o->tiles[i].row0, L->s.dtype}, .accumulate = t + m > 0});
            value_drop(L, o, i);
        }
    value_get(L, b->in, c);
    lower_add(L, v, b->in, &L->acc, w, c);
    value_drop(L, &L->acc, c);
}

/* --- Backward --- */

void output_backward(struct lowering *L, const struct block *b, int t, int c)
{
    const struct model_linear *w = &b->weights->attention.o;
    struct attention_layer *kept = b->values;
    struct attention_work *W = attention_work(L);
    int64_t width = L->s.head_tile * L->m->config.head_dim;
    enum dtype T = L->s.dtype;
    struct value *o = &kept->o[t], *d_o = &W->d_o[t], *delta = &W->delta[t];
    int64_t x0 = L->dx.tiles[c].row0, x1 = L->dx.tiles[c].row1;
    value_get(L, &L->dx, c);
    for (int m = 0; m < L->ulysses; m++) {
        int i = m * L->n_chunks + c;
        int64_t r0 = o->tiles[i].row0, r1 = o->tiles[i].row1, first = routed_head(L, m, t) * L->m->config.head_dim;
        value_get(L, o, i);
        value_new(L, d_o, i);
        struct linear_call call = {w, first, width, r1 - r0, .y = {&L->dx, x0, T}, .x = {d_o, r0, T}};
        lower_linear_dx(L, &call);
        call.x.value = o;
        lower_linear_dw(L, &call);
        value_new(L, delta, i);
        struct op_attrs *a = emit(L, OP_ATTN_DELTA, LANE_COMPUTE);
        a->heads.rows = r1 - r0;
        a->heads.heads = L->s.head_tile;
        a->heads.head_dim = (int32_t)L->m->config.head_dim;
        a->heads.dtype = (int32_t)T;
        arg_write(L, 0, delta, r0, r1, DEV);
        arg_read(L, 1, o, r0, r1, DEV);
        arg_read(L, 2, d_o, r0, r1, DEV);
        emit_done(L, 0);
        value_drop(L, o, i);
    }
    if (t == 0)
        lower_bias_grad(L, w, &L->dx, T, x0, x1);
    value_drop(L, &L->dx, c);
}

/* What one member's heads of a tile contribute to chunk c. rotated_heads: dy is of a rotated value; 0: it is not. */
static void projection_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy,
                                enum dtype dy_type, int i, int rotated_heads, int accumulate)
{
    int64_t r0 = dy->tiles[i].row0, r1 = dy->tiles[i].row1;
    struct tile *chunk = &b->normed->tiles[i % L->n_chunks];
    value_get(L, dy, i);
    if (rotated_heads)
        lower_rope(L, dy, r0, r1, chunk->row0, rotated_heads, dy_type, 1);
    struct linear_call call = {w, .rows = r1 - r0, .y = {dy, r0, dy_type}, .x = {b->normed, chunk->row0, L->s.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, dy, dy_type, r0, r1);
    call.x = (struct linear_side){&L->acc, chunk->row0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
    value_drop(L, dy, i);
}

/* The members that share member m's KV head (they follow it) have their gradients added to its own. */
static void add_replicas(struct lowering *L, struct value *dy, int m, int c)
{
    int first = m * L->n_chunks + c;
    struct tile *sum = &dy->tiles[first];
    for (int other = m + 1; other < L->ulysses && kv_replica(L, other); other++) {
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

void qkv_backward(struct lowering *L, const struct block *b, int c)
{
    struct attention_work *W = attention_work(L);
    value_get(L, b->in, c);
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            struct model_linear w = q_slice(L, &b->weights->attention.q, m, t);
            projection_backward(L, b, &w, &W->dq[t], dq_type(L), m * L->n_chunks + c, L->s.head_tile, t + m > 0);
        }
    for (int kt = 0; kt < L->n_tiles_kv; kt++)
        for (int m = 0; m < L->ulysses; m++) {
            if (kv_replica(L, m))
                continue;
            struct model_linear k = kv_slice(L, &b->weights->attention.k, m, kt), v = kv_slice(L, &b->weights->attention.v, m, kt);
            add_replicas(L, &W->dk[kt], m, c);
            projection_backward(L, b, &k, &W->dk[kt], F32, m * L->n_chunks + c, L->kv_heads_tile, 1);
            add_replicas(L, &W->dv[kt], m, c);
            projection_backward(L, b, &v, &W->dv[kt], F32, m * L->n_chunks + c, 0, 1);
        }
    value_drop(L, b->normed, c);
    value_get(L, &L->dx, c);
    lower_norm_backward(L, b->norm, b->in, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    value_drop(L, &L->acc, c);
    value_drop(L, b->in, c);
}

int projections_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    int q_parts = (int)(L->m->config.heads / L->s.head_tile), kv_parts = (int)(L->m->config.kv_heads / L->kv_heads_tile);
    n = linear_cuts(L, &b->weights->attention.q, q_parts, OF_OUTPUTS, cuts, n, max);
    n = linear_cuts(L, &b->weights->attention.k, kv_parts, OF_OUTPUTS, cuts, n, max);
    n = linear_cuts(L, &b->weights->attention.v, kv_parts, OF_OUTPUTS, cuts, n, max);
    return linear_cuts(L, &b->weights->attention.o, q_parts, OF_INPUTS, cuts, n, max);
}
