/* Latent attention, chunk by chunk.
 *
 * Three narrow rows of a token are kept, as the maps give them: the latent of keys and values, the rotated part of the keys, which all
 * heads share, and the latent of queries. Tiles of q, k and v are expanded from these rows at each visit, and never kept; the latents'
 * gradients are added up over all tiles of a chunk in fp32.
 *
 * Source: DeepSeek-V2 (DeepSeek-AI 2024), section 2.1. */
#include "plan/lower/blocks/latent.h"

#include "plan/lower/activation.h"
#include "plan/lower/blocks/latent_heads.h"
#include "plan/lower/blocks/latent_ring.h"
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

/* --- Maps --- */

static struct model_linear kv_a_latent(const struct attention_block *w, const struct attention_shape *s)
{
    return linear_outputs(&w->kv_a, 0, s->kv_latent);
}

static struct model_linear kv_a_rotated(const struct attention_block *w, const struct attention_shape *s)
{
    return linear_outputs(&w->kv_a, s->kv_latent, s->rotated);
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
    latent_map(L, w, v, t->row0, v->block->normed, t->row0, t->row1 - t->row0);
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
    const struct model_linear w = latent_heads_slice(h, &weights_of(b)->q, i / L->n_chunks, v->index, h->q, h->dim);
    const int64_t r0 = v->tiles[i].row0, rows = v->tiles[i].row1 - r0, x0 = b->normed->tiles[c].row0;
    struct value *from = get_query_input(L, b, c);
    value_new(L, v, i);
    latent_map(L, &w, v, r0, from, x0, rows);
    rotate(L, b, v, r0, rows, x0, (struct rotation){.heads = h->q, .type = L->s.key.dtype, .queries = 1}, h->dim);
}

/* Returns chunk c of the layer's latents, normalised, for a tile of keys and values of ulysses member m; the latents' part that all heads
 * share is not fetched. */
static struct latent_tile tile_of(struct lowering *L, const struct block *b, int m, int t, int c)
{
    const struct tile *rows = &b->normed->tiles[c];
    return (struct latent_tile){.weights = weights_of(b),
                                .member = m,
                                .tile = t,
                                .normed = get_kv_latent(L, b, c),
                                .rotated = &((struct attention_layer *)b->values)->rotated,
                                .row = rows->row0,
                                .rows = rows->row1 - rows->row0,
                                .own = &work_of(L, b)->own,
                                .own_row = rows->row0};
}

void latent_k(struct lowering *L, struct value *v, int i)
{
    const int c = i % L->n_chunks;
    const struct latent_tile x = tile_of(L, v->block, i / L->n_chunks, v->index, c);
    value_get(L, x.rotated, c);
    latent_make_keys(L, &x, v, v->tiles[i].row0);
}

void latent_v(struct lowering *L, struct value *v, int i)
{
    const struct latent_tile x = tile_of(L, v->block, i / L->n_chunks, v->index, i % L->n_chunks);
    latent_make_values(L, &x, v, v->tiles[i].row0);
}

/* --- Backward --- */

/* Computes the gradients of the map to queries over all tiles. dx: sum of the inputs' gradient; NULL: nobody needs that gradient. */
static void queries_back(struct lowering *L, const struct block *b, struct value *x, struct value *dx, int c)
{
    const struct head_tiles *h = heads_of(L, weights_of(b));
    struct attention_work *W = work_of(L, b);
    const int64_t x0 = b->normed->tiles[c].row0, rows = b->normed->tiles[c].row1 - x0;
    for (int t = 0; t < h->n_q; t++)
        for (int m = 0; m < L->ulysses; m++) {
            const int i = m * L->n_chunks + c;
            const struct model_linear w = latent_heads_slice(h, &weights_of(b)->q, m, t, h->q, h->dim);
            struct value *dq = &W->dq[t];
            const int64_t r0 = dq->tiles[i].row0;
            value_get(L, dq, i);
            rotate(L, b, dq, r0, rows, x0, (struct rotation){.heads = h->q, .type = dq_type(L), .queries = 1, .inverse = 1},
                   h->dim);
            latent_map_back(L, &(struct latent_step){&w, {dq, r0, dq_type(L)}, x, dx}, x0, rows, t + m > 0);
            value_drop(L, dq, i);
        }
}

/* Adds up the gradients of the normalised latent and of the shared part of the keys. */
static void keys_back(struct lowering *L, const struct block *b, int c)
{
    struct attention_work *W = work_of(L, b);
    for (int t = 0; t < W->heads->n_kv; t++)
        for (int m = 0; m < L->ulysses; m++) {
            const int i = m * L->n_chunks + c;
            struct value *dk = &W->dk[t], *dv = &W->dv[t];
            struct latent_tile x = tile_of(L, b, m, t, c);
            x.own = &W->d_own;
            value_get(L, dk, i);
            latent_keys_back(L, &x, dk, dk->tiles[i].row0, &W->dkv_normed, &W->d_rotated, t + m > 0);
            value_drop(L, dk, i);
            value_get(L, dv, i);
            latent_values_back(L, &x, dv, dv->tiles[i].row0, &W->dkv_normed);
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
    latent_map_back(L, &(struct latent_step){&w->q_a, {&W->dq_latent, x0, L->s.key.dtype}, b->normed, acc}, x0, rows, 0);
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
    value_get(L, &a->kv_latent, c);
    if (ring_sends_latents(L, w)) {
        value_get(L, &W->dkv_normed, c);
        value_get(L, &W->d_rotated, c);
    } else {
        value_new(L, &W->dkv_normed, c);
        value_new(L, &W->d_rotated, c);
        keys_back(L, b, c);
        value_drop(L, &W->kv_normed, c);
    }
    value_new(L, &W->dkv_latent, c);
    lower_head_norm_backward(L, &w->kv_a_norm, &W->dkv_latent, &a->kv_latent, x0, &W->dkv_normed, x0, rows,
                             (struct heads){0, 0, 0});
    value_drop(L, &W->dkv_normed, c);
    value_drop(L, &a->kv_latent, c);
    latent_map_back(L, &(struct latent_step){&to_latent, {&W->dkv_latent, x0, L->s.key.dtype}, b->normed, acc}, x0, rows, 1);
    value_drop(L, &W->dkv_latent, c);
    rotate(L, b, &W->d_rotated, x0, rows, x0, (struct rotation){.heads = 1, .type = F32, .inverse = 1}, s->rotated);
    latent_map_back(L, &(struct latent_step){&to_rotated, {&W->d_rotated, x0, F32}, b->normed, acc}, x0, rows, 1);
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
    const int64_t own = W->heads->kv * latent_own_dim(s);
    /* sums from other ranks wait for the visits of their chunks */
    const enum residency of_sums = latent_ring_needed(L, shape) ? L->s.placement.passing : RES_NONE;
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
            activation_of_work(L, a.value == &W->dkv_normed || a.value == &W->d_rotated ? of_sums : RES_NONE, -1, &a);
    }
}
