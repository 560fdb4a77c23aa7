#include "plan/lower/blocks/latent_cache.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static const struct attention_shape *shape_of(const struct lowering *L, const struct attention_block *w)
{
    return &L->m->shapes[w->shape];
}

int caches_latents(const struct lowering *L, const struct attention_block *w)
{
    return cached_latents(&L->s, shape_of(L, w));
}

/* --- Creation --- */

struct head_tiles latent_heads(const struct lowering *L, int shape)
{
    const struct attention_shape *s = &L->m->shapes[shape];
    struct head_tiles h = L->heads[shape];
    if (!cached_latents(&L->s, s))
        return h;
    h.dim = s->kv_latent + s->rotated;
    h.value = s->kv_latent;
    h.kv = 1;
    return h;
}

void latent_cache_values(struct lowering *L, struct attention_work *W)
{
    const struct head_tiles *h = &W->attended;
    const int64_t size = dtype_size(L->s.key.dtype);
    char text[WORK_NAME];
    if (!W->caches_latents)
        return;
    heads_value(L, W, &W->absorbed, "absorbed", h->q * h->dim * size);
    heads_value(L, W, &W->latent_o, "latent_o", h->q * h->value * size);
    value_create(L, &W->joined, work_name(W, "joined", text), CLASS_WORK, L->s.cache_block, h->dim * size, L->s.cache_block,
                 RES_NONE);
}

/* --- Forward --- */

/* Copies the rotated part of each head of q into those of `absorbed`. */
static void copy_rotated(struct lowering *L, const struct attention_block *w, struct value *absorbed, struct value *q)
{
    const struct attention_shape *s = shape_of(L, w);
    const struct attention_work *W = attention_work(L, w);
    struct op_attrs *a = emit(L, OP_COLUMNS, LANE_COMPUTE);
    a->columns.rows = L->attn_rows * W->attended.q;
    a->columns.cols = s->rotated;
    a->columns.y_first = s->kv_latent;
    a->columns.x_first = s->head_dim - s->rotated;
    a->columns.y_ld = W->attended.dim;
    a->columns.x_ld = s->head_dim;
    a->columns.y_type = a->columns.x_type = (int32_t)L->s.key.dtype;
    a->columns.keep = 1;
    arg_update(L, 0, absorbed, 0, L->attn_rows, DEV);
    arg_read(L, 1, q, 0, L->attn_rows, DEV);
    emit_done(L, 0);
}

struct forward_tile latent_absorb(struct lowering *L, const struct forward_tile *f)
{
    const struct attention_block *w = f->weights;
    struct attention_work *W = attention_work(L, w);
    const int64_t own = W->heads->dim - shape_of(L, w)->rotated;
    struct forward_tile sums = *f;
    sums.q = &W->absorbed;
    sums.o = &W->latent_o;
    value_new(L, sums.q, 0);
    value_new(L, sums.o, 0);
    for (int64_t h = 0; h < W->heads->q; h++) {
        const struct model_linear k = linear_outputs(&w->k, (f->tile * W->heads->q + h) * own, own);
        lower_linear_dx(
            L, &(struct linear_call){
                   &k, .rows = L->attn_rows, .y = {f->q, 0, L->s.key.dtype, W->heads->q * W->heads->dim, h * W->heads->dim},
                   .x = {sums.q, 0, L->s.key.dtype, W->attended.q * W->attended.dim, h * W->attended.dim}, .apart = 1});
    }
    copy_rotated(L, w, sums.q, f->q);
    return sums;
}

void latent_join(struct lowering *L, struct forward_tile *f)
{
    const struct attention_shape *s = shape_of(L, f->weights);
    struct attention_work *W = attention_work(L, f->weights);
    value_new(L, &W->joined, 0);
    struct op_attrs *a = emit(L, OP_HEADS_JOIN, LANE_COMPUTE);
    a->join.rows = f->keys;
    a->join.heads = 1;
    a->join.own = (int32_t)s->kv_latent;
    a->join.shared = (int32_t)s->rotated;
    a->join.dtype = (int32_t)L->s.key.dtype;
    arg_write(L, 0, &W->joined, 0, f->keys, DEV);
    arg_read(L, 1, f->v, f->first_value, f->first_value + f->keys, DEV);
    arg_read(L, 2, f->k, f->first_key, f->first_key + f->keys, DEV);
    emit_done(L, 0);
    f->k = &W->joined;
    f->first_key = 0;
}

void latent_results(struct lowering *L, const struct forward_tile *sums, const struct forward_tile *f)
{
    const struct attention_block *w = f->weights;
    const struct attention_work *W = attention_work(L, w);
    const int64_t value = W->heads->value;
    for (int64_t h = 0; h < W->heads->q; h++) {
        const struct model_linear v = linear_outputs(&w->v, (f->tile * W->heads->q + h) * value, value);
        lower_linear(L, &(struct linear_call){
                            &v, .rows = L->attn_rows, .y = {f->o, 0, L->s.key.dtype, W->heads->q * value, h * value},
                            .x = {sums->o, 0, L->s.key.dtype, W->attended.q * W->attended.value, h * W->attended.value}});
    }
    value_drop(L, sums->q, 0);
    value_drop(L, sums->o, 0);
}
