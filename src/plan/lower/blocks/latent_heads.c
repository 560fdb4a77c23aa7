#include "plan/lower/blocks/latent_heads.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/value.h"

#define DEV TIER_DEVICE

static const struct attention_shape *shape_of(const struct lowering *L, const struct attention_block *w)
{
    return &L->m->shapes[w->shape];
}

int64_t latent_own_dim(const struct attention_shape *s)
{
    return s->head_dim - s->rotated;
}

struct model_linear latent_heads_slice(const struct head_tiles *h, const struct model_linear *w, int m, int t, int per,
                                       int64_t dim)
{
    return linear_outputs(w, (m * h->heads + t * per) * dim, per * dim);
}

static struct model_linear to_keys(const struct lowering *L, const struct latent_tile *x)
{
    const struct head_tiles *h = heads_of(L, x->weights);
    return latent_heads_slice(h, &x->weights->k, x->member, x->tile, h->kv, latent_own_dim(shape_of(L, x->weights)));
}

static struct model_linear to_values(const struct lowering *L, const struct latent_tile *x)
{
    const struct head_tiles *h = heads_of(L, x->weights);
    return latent_heads_slice(h, &x->weights->v, x->member, x->tile, h->kv, h->value);
}

/* --- Forward --- */

void latent_map(struct lowering *L, const struct model_linear *w, struct value *y, int64_t y0, struct value *x, int64_t x0,
                int64_t rows)
{
    const enum dtype T = L->s.key.dtype;
    lower_linear(L, &(struct linear_call){w, .rows = rows, .y = {y, y0, T}, .x = {x, x0, T}});
    lower_bias(L, w, y, y0, y0 + rows);
}

static void join_attrs(const struct lowering *L, const struct latent_tile *x, struct op_attrs *a, enum dtype type)
{
    const struct attention_shape *s = shape_of(L, x->weights);
    a->join.rows = x->rows;
    a->join.heads = heads_of(L, x->weights)->kv;
    a->join.own = (int32_t)latent_own_dim(s);
    a->join.shared = (int32_t)s->rotated;
    a->join.dtype = (int32_t)type;
}

void latent_make_keys(struct lowering *L, const struct latent_tile *x, struct value *k, int64_t k0)
{
    const struct model_linear w = to_keys(L, x);
    const int own = value_tile_at(x->own, x->own_row);
    value_new(L, x->own, own);
    latent_map(L, &w, x->own, x->own_row, x->normed, x->row, x->rows);
    value_new(L, k, value_tile_at(k, k0));
    join_attrs(L, x, emit(L, OP_HEADS_JOIN, LANE_COMPUTE), L->s.key.dtype);
    arg_write(L, 0, k, k0, k0 + x->rows, DEV);
    arg_read(L, 1, x->own, x->own_row, x->own_row + x->rows, DEV);
    arg_read(L, 2, x->rotated, x->row, x->row + x->rows, DEV);
    emit_done(L, 0);
    value_drop(L, x->own, own);
}

void latent_make_values(struct lowering *L, const struct latent_tile *x, struct value *v, int64_t v0)
{
    const struct model_linear w = to_values(L, x);
    value_new(L, v, value_tile_at(v, v0));
    latent_map(L, &w, v, v0, x->normed, x->row, x->rows);
}

/* --- Backward --- */

void latent_map_back(struct lowering *L, const struct latent_step *s, int64_t x0, int64_t rows, int accumulate)
{
    struct linear_call call = {s->w, .rows = rows, .y = s->dy, .x = {s->x, x0, L->s.key.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, s->w, s->dy.value, s->dy.type, s->dy.row, s->dy.row + rows);
    call.x = (struct linear_side){s->dx, x0, F32};
    call.accumulate = accumulate;
    if (s->dx)
        lower_linear_dx(L, &call);
}

/* Splits rows of dk into the heads' own parts and the shared part, which is summed over tiles. */
static void split(struct lowering *L, const struct latent_tile *x, struct value *dk, int64_t dk0, struct value *drotated,
                  int accumulate)
{
    value_new(L, x->own, value_tile_at(x->own, x->own_row));
    struct op_attrs *a = emit(L, OP_HEADS_SPLIT, LANE_COMPUTE);
    join_attrs(L, x, a, F32);
    a->join.accumulate = accumulate;
    arg_write(L, 0, x->own, x->own_row, x->own_row + x->rows, DEV);
    (accumulate ? arg_update : arg_write)(L, 1, drotated, x->row, x->row + x->rows, DEV);
    arg_read(L, 2, dk, dk0, dk0 + x->rows, DEV);
    emit_done(L, 0);
}

void latent_keys_back(struct lowering *L, const struct latent_tile *x, struct value *dk, int64_t dk0, struct value *dnormed,
                      struct value *drotated, int accumulate)
{
    const struct model_linear w = to_keys(L, x);
    split(L, x, dk, dk0, drotated, accumulate);
    latent_map_back(L, &(struct latent_step){&w, {x->own, x->own_row, F32}, x->normed, dnormed}, x->row, x->rows, accumulate);
    value_drop(L, x->own, value_tile_at(x->own, x->own_row));
}

void latent_values_back(struct lowering *L, const struct latent_tile *x, struct value *dv, int64_t dv0, struct value *dnormed)
{
    const struct model_linear w = to_values(L, x);
    latent_map_back(L, &(struct latent_step){&w, {dv, dv0, F32}, x->normed, dnormed}, x->row, x->rows, 1);
}
