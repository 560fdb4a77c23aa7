/* Latent attention, chunk by chunk.
 *
 * Three narrow rows of a token are kept, as the maps give them: the latent of keys and values, the rotated part of the keys, which all
 * heads share, and the latent of queries. Tiles of q, k and v are expanded from these rows at each visit, and never kept; the latents'
 * gradients are added up over all tiles of a chunk in fp32.
 *
 * Source: DeepSeek-V2 (DeepSeek-AI 2024), section 2.1. */
#include "plan/lower/blocks/latent.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static const struct attention_block *weights_of(const struct block *b)
{
    return &b->weights->attention;
}

static const struct attention_shape *shape_of(const struct lowering *L, const struct block *b)
{
    return &L->m->shapes[weights_of(b)->shape];
}

static struct attention_work *work_of(const struct lowering *L, const struct block *b)
{
    return attention_work(L, weights_of(b));
}

static int has_query_latent(const struct block *b)
{
    return weights_of(b)->q_a.weight >= 0;
}

/* Returns the number of elements of a head's key that belong to this head alone: those that are not rotated. */
static int64_t own_dim(const struct attention_shape *s)
{
    return s->head_dim - s->rotated;
}

/* --- Maps --- */

/* Returns the part of a map to all heads, `dim` outputs each, for tile t of ulysses member m: `per` heads. */
static struct model_linear heads_slice(const struct head_tiles *h, const struct model_linear *w, int m, int t, int per,
                                       int64_t dim)
{
    return linear_outputs(w, (m * h->heads + t * per) * dim, per * dim);
}

static struct model_linear kv_a_latent(const struct attention_block *w, const struct attention_shape *s)
{
    return linear_outputs(&w->kv_a, 0, s->kv_latent);
}

static struct model_linear kv_a_rotated(const struct attention_block *w, const struct attention_shape *s)
{
    return linear_outputs(&w->kv_a, s->kv_latent, s->rotated);
}

/* Computes `rows` rows of y from those of x, bias included. */
static void apply(struct lowering *L, const struct model_linear *w, struct value *y, int64_t y0, struct value *x, int64_t x0,
                  int64_t rows)
{
    const enum dtype T = L->s.key.dtype;
    lower_linear(L, &(struct linear_call){w, .rows = rows, .y = {y, y0, T}, .x = {x, x0, T}});
    lower_bias(L, w, y, y0, y0 + rows);
}

/* Rotates the last elements of `heads` heads of `dim` elements, or back. */
static void rotate(struct lowering *L, const struct block *b, struct value *x, int64_t r0, int64_t rows, int64_t p0,
                   struct rotation how, int64_t dim)
{
    how.rope = weights_of(b)->rope;
    how.head_dim = dim;
    how.first = dim - shape_of(L, b)->rotated;
    lower_rope(L, &how, x, r0, r0 + rows, p0);
}

/* --- Latents --- */

/* Computes a chunk of a latent from the block's normalised input. */
static void make(struct lowering *L, struct value *v, int c, const struct model_linear *w)
{
    const struct tile *t = &v->tiles[c];
    block_norm(L, v->block, c);
    value_new(L, v, c);
    apply(L, w, v, t->row0, v->block->normed, t->row0, t->row1 - t->row0);
}

static void produce_kv_latent(struct lowering *L, struct value *v, int c)
{
    const struct model_linear w = kv_a_latent(weights_of(v->block), shape_of(L, v->block));
    make(L, v, c, &w);
}

static void produce_rotated(struct lowering *L, struct value *v, int c)
{
    const struct attention_shape *s = shape_of(L, v->block);
    const struct model_linear w = kv_a_rotated(weights_of(v->block), s);
    const struct tile *t = &v->tiles[c];
    make(L, v, c, &w);
    rotate(L, v->block, v, t->row0, t->row1 - t->row0, t->row0, (struct rotation){.heads = 1, .type = L->s.key.dtype},
           s->rotated);
}

static void produce_q_latent(struct lowering *L, struct value *v, int c)
{
    make(L, v, c, &weights_of(v->block)->q_a);
}

/* Makes sure that chunk c of a latent is on the device, as the map gave it and normalised. */
static void get_latent(struct lowering *L, const struct model_norm *norm, struct value *latent, struct value *normed, int c)
{
    const struct tile *t = &latent->tiles[c];
    value_get(L, latent, c);
    if (value_on_device(normed, c))
        return;
    value_new(L, normed, c);
    lower_head_norm_forward(L, norm, normed, t->row0, latent, t->row0, t->row1 - t->row0, (struct heads){0, 0, 0});
}

static struct value *get_kv_latent(struct lowering *L, const struct block *b, int c)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    get_latent(L, &weights_of(b)->kv_a_norm, &a->kv_latent, &W->kv_normed, c);
    return &W->kv_normed;
}

/* Makes sure that chunk c of the input of the map to queries is on the device, and returns it. */
static struct value *get_query_input(struct lowering *L, const struct block *b, int c)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    if (!has_query_latent(b)) {
        block_norm(L, b, c);
        return b->normed;
    }
    get_latent(L, &weights_of(b)->q_a_norm, &a->q_latent, &W->q_normed, c);
    return &W->q_normed;
}

struct value *latent_rows(struct lowering *L, const struct block *b, struct value **shared)
{
    struct attention_layer *a = b->values;
    value_get(L, &a->rotated, 0);
    *shared = &a->rotated;
    return get_kv_latent(L, b, 0);
}

void latents_drop(struct lowering *L, const struct block *b, int c)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    if (!attends_latents(weights_of(b)))
        return;
    value_drop(L, &W->kv_normed, c);
    value_pause(L, &a->kv_latent, c);
    value_pause(L, &a->rotated, c);
    if (has_query_latent(b)) {
        value_drop(L, &W->q_normed, c);
        value_pause(L, &a->q_latent, c);
    }
}

void latents_leave(struct lowering *L, const struct block *b)
{
    struct attention_layer *a = b->values;
    if (!attends_latents(weights_of(b)))
        return;
    value_leave(L, &a->kv_latent);
    value_leave(L, &a->rotated);
    if (has_query_latent(b))
        value_leave(L, &a->q_latent);
}

/* --- Forward --- */

void latent_q(struct lowering *L, struct value *v, int i)
{
    const struct block *b = v->block;
    const struct head_tiles *h = heads_of(L, weights_of(b));
    const int c = i % L->n_chunks;
    const struct model_linear w = heads_slice(h, &weights_of(b)->q, i / L->n_chunks, v->index, h->q, h->dim);
    const int64_t r0 = v->tiles[i].row0, rows = v->tiles[i].row1 - r0, x0 = b->normed->tiles[c].row0;
    struct value *from = get_query_input(L, b, c);
    value_new(L, v, i);
    apply(L, &w, v, r0, from, x0, rows);
    rotate(L, b, v, r0, rows, x0, (struct rotation){.heads = h->q, .type = L->s.key.dtype, .queries = 1}, h->dim);
}

static void join_attrs(const struct lowering *L, const struct block *b, struct op_attrs *a, int64_t rows, enum dtype type)
{
    const struct attention_shape *s = shape_of(L, b);
    a->join.rows = rows;
    a->join.heads = heads_of(L, weights_of(b))->kv;
    a->join.own = (int32_t)own_dim(s);
    a->join.shared = (int32_t)s->rotated;
    a->join.dtype = (int32_t)type;
}

void latent_k(struct lowering *L, struct value *v, int i)
{
    const struct block *b = v->block;
    const struct head_tiles *h = heads_of(L, weights_of(b));
    struct attention_layer *kept = b->values;
    struct attention_work *W = work_of(L, b);
    const int c = i % L->n_chunks;
    const struct model_linear w = heads_slice(h, &weights_of(b)->k, i / L->n_chunks, v->index, h->kv, own_dim(shape_of(L, b)));
    const int64_t r0 = v->tiles[i].row0, rows = v->tiles[i].row1 - r0, x0 = b->normed->tiles[c].row0;
    struct value *from = get_kv_latent(L, b, c);
    value_get(L, &kept->rotated, c);
    value_new(L, &W->own, c);
    apply(L, &w, &W->own, x0, from, x0, rows);
    value_new(L, v, i);
    struct op_attrs *a = emit(L, OP_HEADS_JOIN, LANE_COMPUTE);
    join_attrs(L, b, a, rows, L->s.key.dtype);
    arg_write(L, 0, v, r0, r0 + rows, DEV);
    arg_read(L, 1, &W->own, x0, x0 + rows, DEV);
    arg_read(L, 2, &kept->rotated, x0, x0 + rows, DEV);
    emit_done(L, 0);
    value_drop(L, &W->own, c);
}

void latent_v(struct lowering *L, struct value *v, int i)
{
    const struct block *b = v->block;
    const struct head_tiles *h = heads_of(L, weights_of(b));
    const int c = i % L->n_chunks;
    const struct model_linear w = heads_slice(h, &weights_of(b)->v, i / L->n_chunks, v->index, h->kv, h->value);
    const int64_t r0 = v->tiles[i].row0, rows = v->tiles[i].row1 - r0;
    struct value *from = get_kv_latent(L, b, c);
    value_new(L, v, i);
    apply(L, &w, v, r0, from, b->normed->tiles[c].row0, rows);
}

/* --- Backward --- */

/* A map w in the backward pass. dy: gradient of its outputs; x: its inputs; dx: fp32 sum of its inputs' gradient, NULL if nobody needs
 * that gradient. */
struct step {
    const struct model_linear *w;
    struct linear_side dy;
    struct value *x, *dx;
};

/* Computes the gradients of a map's weights, and sets dx or adds to dx. */
static void step_back(struct lowering *L, const struct step *s, int64_t x0, int64_t rows, int accumulate)
{
    struct linear_call call = {s->w, .rows = rows, .y = s->dy, .x = {s->x, x0, L->s.key.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, s->w, s->dy.value, s->dy.type, s->dy.row, s->dy.row + rows);
    call.x = (struct linear_side){s->dx, x0, F32};
    call.accumulate = accumulate;
    if (s->dx)
        lower_linear_dx(L, &call);
}

/* Computes the gradients of the map to queries over all tiles. dx: sum of the inputs' gradient; NULL: nobody needs that gradient. */
static void queries_back(struct lowering *L, const struct block *b, struct value *x, struct value *dx, int c)
{
    const struct head_tiles *h = heads_of(L, weights_of(b));
    struct attention_work *W = work_of(L, b);
    const int64_t x0 = b->normed->tiles[c].row0, rows = b->normed->tiles[c].row1 - x0;
    for (int t = 0; t < h->n_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            const int i = m * L->n_chunks + c;
            const struct model_linear w = heads_slice(h, &weights_of(b)->q, m, t, h->q, h->dim);
            struct value *dq = &W->dq[t];
            const int64_t r0 = dq->tiles[i].row0;
            value_get(L, dq, i);
            rotate(L, b, dq, r0, rows, x0, (struct rotation){.heads = h->q, .type = dq_type(L), .queries = 1, .inverse = 1},
                   h->dim);
            step_back(L, &(struct step){&w, {dq, r0, dq_type(L)}, x, dx}, x0, rows, t + m > 0);
            value_drop(L, dq, i);
        }
}

/* Splits a tile of dk, chunk i, into the heads' own parts and the shared part, which is summed over tiles. */
static void split(struct lowering *L, const struct block *b, struct value *dk, int i, int accumulate)
{
    struct attention_work *W = work_of(L, b);
    const int c = i % L->n_chunks;
    const int64_t r0 = dk->tiles[i].row0, rows = dk->tiles[i].row1 - r0, x0 = b->normed->tiles[c].row0;
    value_new(L, &W->d_own, c);
    struct op_attrs *a = emit(L, OP_HEADS_SPLIT, LANE_COMPUTE);
    join_attrs(L, b, a, rows, F32);
    a->join.accumulate = accumulate;
    arg_write(L, 0, &W->d_own, x0, x0 + rows, DEV);
    (accumulate ? arg_update : arg_write)(L, 1, &W->d_rotated, x0, x0 + rows, DEV);
    arg_read(L, 2, dk, r0, r0 + rows, DEV);
    emit_done(L, 0);
}

/* Adds up the gradients of the normalised latent and of the shared part of the keys. */
static void keys_back(struct lowering *L, const struct block *b, struct value *x, int c)
{
    const struct attention_block *w = weights_of(b);
    const struct head_tiles *h = heads_of(L, w);
    struct attention_work *W = work_of(L, b);
    const int64_t x0 = b->normed->tiles[c].row0, rows = b->normed->tiles[c].row1 - x0;
    for (int t = 0; t < h->n_kv; t++)
        for (int m = 0; m < L->ulysses; m++) {
            const int i = m * L->n_chunks + c;
            const struct model_linear k = heads_slice(h, &w->k, m, t, h->kv, own_dim(shape_of(L, b))),
                                      v = heads_slice(h, &w->v, m, t, h->kv, h->value);
            struct value *dv = &W->dv[t];
            value_get(L, &W->dk[t], i);
            split(L, b, &W->dk[t], i, t + m > 0);
            value_drop(L, &W->dk[t], i);
            step_back(L, &(struct step){&k, {&W->d_own, x0, F32}, x, &W->dkv_normed}, x0, rows, t + m > 0);
            value_drop(L, &W->d_own, c);
            value_get(L, dv, i);
            step_back(L, &(struct step){&v, {dv, dv->tiles[i].row0, F32}, x, &W->dkv_normed}, x0, rows, 1);
            value_drop(L, dv, i);
        }
}

static void gradient_of_queries(struct lowering *L, const struct block *b, struct value *acc, int c)
{
    const struct attention_block *w = weights_of(b);
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    const int64_t x0 = b->normed->tiles[c].row0, rows = b->normed->tiles[c].row1 - x0;
    struct value *x = get_query_input(L, b, c);
    if (!has_query_latent(b)) {
        queries_back(L, b, x, acc, c);
        return;
    }
    value_new(L, &W->dq_normed, c);
    queries_back(L, b, x, &W->dq_normed, c);
    value_drop(L, x, c);
    value_new(L, &W->dq_latent, c);
    lower_head_norm_backward(L, &w->q_a_norm, &W->dq_latent, &a->q_latent, x0, &W->dq_normed, x0, rows, (struct heads){0, 0, 0});
    value_drop(L, &W->dq_normed, c);
    value_drop(L, &a->q_latent, c);
    step_back(L, &(struct step){&w->q_a, {&W->dq_latent, x0, L->s.key.dtype}, b->normed, acc}, x0, rows, 0);
    value_drop(L, &W->dq_latent, c);
}

static void gradient_of_keys(struct lowering *L, const struct block *b, struct value *acc, int c)
{
    const struct attention_block *w = weights_of(b);
    const struct attention_shape *s = shape_of(L, b);
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    const struct model_linear to_latent = kv_a_latent(w, s), to_rotated = kv_a_rotated(w, s);
    const int64_t x0 = b->normed->tiles[c].row0, rows = b->normed->tiles[c].row1 - x0;
    struct value *x = get_kv_latent(L, b, c);
    value_new(L, &W->dkv_normed, c);
    value_new(L, &W->d_rotated, c);
    keys_back(L, b, x, c);
    value_drop(L, x, c);
    value_new(L, &W->dkv_latent, c);
    lower_head_norm_backward(L, &w->kv_a_norm, &W->dkv_latent, &a->kv_latent, x0, &W->dkv_normed, x0, rows,
                             (struct heads){0, 0, 0});
    value_drop(L, &W->dkv_normed, c);
    value_drop(L, &a->kv_latent, c);
    step_back(L, &(struct step){&to_latent, {&W->dkv_latent, x0, L->s.key.dtype}, b->normed, acc}, x0, rows, 1);
    value_drop(L, &W->dkv_latent, c);
    rotate(L, b, &W->d_rotated, x0, rows, x0, (struct rotation){.heads = 1, .type = F32, .inverse = 1}, s->rotated);
    step_back(L, &(struct step){&to_rotated, {&W->d_rotated, x0, F32}, b->normed, acc}, x0, rows, 1);
    value_drop(L, &W->d_rotated, c);
}

void latent_gradients(struct lowering *L, const struct block *b, int c)
{
    struct value *acc = block_passes_gradient(L, b) ? &L->acc : NULL;
    gradient_of_queries(L, b, acc, c);
    gradient_of_keys(L, b, acc, c);
}

int latent_grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct model_linear to_latent = kv_a_latent(weights_of(b), shape_of(L, b)),
                              to_rotated = kv_a_rotated(weights_of(b), shape_of(L, b));
    n = linear_cuts(L, &to_latent, 1, OF_OUTPUTS, cuts, n, max);
    return linear_cuts(L, &to_rotated, 1, OF_OUTPUTS, cuts, n, max);
}

/* --- Creation --- */

void latents_of_layer(struct lowering *L, struct block *b)
{
    const struct attention_shape *s = shape_of(L, b);
    const enum dtype T = L->s.key.dtype;
    struct attention_layer *a = b->values;
    const struct activation all[] = {{&a->kv_latent, "kv_latent", s->kv_latent, T, CHUNKS, produce_kv_latent, KEPT_REVISITED},
                                     {&a->rotated, "rotated", s->rotated, T, CHUNKS, produce_rotated, KEPT_REVISITED},
                                     {&a->q_latent, "q_latent", s->q_latent, T, CHUNKS, produce_q_latent, KEPT_REVISITED}};
    for (int i = 0; i < 2 + has_query_latent(b) && L->st == OK; i++)
        activation_of_layer(L, b, -1, &all[i]);
}

void latents_of_work(struct lowering *L, struct attention_work *W, int shape)
{
    const struct attention_shape *s = &L->m->shapes[shape];
    const enum dtype T = L->s.key.dtype;
    const int64_t own = W->heads->kv * own_dim(s);
    const struct activation all[] = {{&W->kv_normed, "kv_normed", s->kv_latent, T, CHUNKS},
                                     {&W->dkv_normed, "dkv_normed", s->kv_latent, F32, CHUNKS},
                                     {&W->dkv_latent, "dkv_latent", s->kv_latent, T, CHUNKS},
                                     {&W->d_rotated, "drotated", s->rotated, F32, CHUNKS},
                                     {&W->own, "keys_own", own, T, CHUNKS},
                                     {&W->d_own, "dkeys_own", own, F32, CHUNKS},
                                     {&W->q_normed, "q_normed", s->q_latent, T, CHUNKS},
                                     {&W->dq_normed, "dq_normed", s->q_latent, F32, CHUNKS},
                                     {&W->dq_latent, "dq_latent", s->q_latent, T, CHUNKS}};
    for (size_t i = 0; L->st == OK && i < sizeof all / sizeof *all; i++) {
        char text[WORK_NAME];
        struct activation a = all[i];
        a.name = work_name(W, a.name, text);
        if (a.cols > 0)
            activation_of_work(L, RES_NONE, -1, &a);
    }
}
