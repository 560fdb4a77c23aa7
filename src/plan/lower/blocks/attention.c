/* Attention: tile by tile of query heads, between the layouts of tokens and of heads.
 *
 * q, k, v, o and their gradients are stored in the order of a rank's tokens. They are routed: for each member of the ulysses
 * group in turn they have the heads that this member attends (row m * rows + token). With ulysses > 1 an all-to-all turns that
 * into the member's heads of all the group's tokens ("heads" values). With a single member both layouts are the same. The steps
 * of the ring are in ring.c.
 *
 * Source of the layouts, orders and volumes: DeepSpeed-Ulysses (Jacobs et al. 2023). */

#include "plan/lower/activation.h"
#include "plan/lower/blocks/block.h"
#include "plan/lower/blocks/cache.h"
#include "plan/lower/blocks/gates.h"
#include "plan/lower/blocks/kept.h"
#include "plan/lower/blocks/latent.h"
#include "plan/lower/blocks/latent_cache.h"
#include "plan/lower/blocks/latent_ring.h"
#include "plan/lower/blocks/projections.h"
#include "plan/lower/blocks/ring.h"
#include "plan/lower/emit.h"
#include "plan/lower/stage.h"
#include "plan/lower/value.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static struct attention_work *work_of(const struct lowering *L, const struct block *b)
{
    return attention_work(L, &b->weights->attention);
}

/* --- Between the group's layouts --- */

static void all_to_all(struct lowering *L, struct value *from, struct value *to)
{
    struct op_attrs *a = emit(L, OP_ALL_TO_ALL, LANE_ULYSSES);
    a->comm.element = 4;
    a->comm.n = from->rows * from->row_bytes / 4;
    a->comm.share = a->comm.n / L->ulysses;
    arg_read(L, 0, from, 0, from->rows, DEV);
    arg_write(L, 1, to, 0, to->rows, DEV);
    emit_done(L, 0);
}

/* Turns a routed value, whose tiles are all on the device, into the heads layout and closes the routed value; does nothing if
 * both layouts are the same. */
static void to_heads(struct lowering *L, struct value *routed, struct value *heads)
{
    if (L->ulysses == 1)
        return;
    value_new(L, heads, 0);
    all_to_all(L, routed, heads);
    value_close_full(L, routed);
}

static struct value *heads_or(const struct lowering *L, struct value *routed, struct value *heads)
{
    return L->ulysses == 1 ? routed : heads;
}

static void new_tiles(struct lowering *L, struct value *v)
{
    if (v->full)
        value_open_full(L, v);
    for (int i = 0; i < v->n_tiles; i++)
        value_new(L, v, i);
}

/* Sends a value in the heads layout back to the tokens' owners; does nothing if both layouts are the same. */
static void to_tokens(struct lowering *L, struct value *heads, struct value *routed)
{
    if (L->ulysses == 1)
        return;
    new_tiles(L, routed);
    all_to_all(L, heads, routed);
    value_drop(L, heads, 0);
}

static void put_all(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        value_put(L, v, i);
}

/* --- Forward --- */

/* Tells whether k and v are gathered beside q of tile t. The backward pass of a slice finds them where they are kept, and cached
 * latents are attended as they are. */
static int gathers_keys(const struct lowering *L, const struct attention_block *w, int is_first)
{
    if (caches_latents(L, w) || ring_sends_latents(L, w))
        return 0;
    return kept_keys(L) ? is_first && L->phase == PHASE_FORWARD : L->ulysses == 1 || is_first;
}

/* Gets q of tile t, and k and v with the first query tile that attends them. Chunk by chunk they are fetched or computed, then
 * brought into the heads layout. */
static void gather_qkv(struct lowering *L, const struct block *b, int t)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    int q_per_kv = W->heads->q_per_kv, kt = t / q_per_kv;
    struct value *q = &a->q[t], *k = &a->k[kt], *v = &a->v[kt];
    const struct attention_block *w = &b->weights->attention;
    const int with_keys = gathers_keys(L, w, t % q_per_kv == 0);
    value_open_full(L, q);
    if (t == 0)
        latent_ring_begin(L, w);
    if (with_keys) {
        value_open_full(L, k);
        value_open_full(L, v);
    }
    for (int c = 0; c < L->n_chunks; c++) {
        for (int m = 0; m < L->ulysses; m++) {
            int i = m * L->n_chunks + c;
            value_get(L, q, i);
            if (with_keys) {
                value_get(L, k, i);
                value_get(L, v, i);
            }
        }
        if (t == 0)
            latent_ring_put(L, b, c);
        if (caches_latents(L, w))
            cache_append_latents(L, b);
        value_drop(L, b->normed, c);
        drop_all_heads(L, b, c);
        latents_drop(L, b, c);
        value_pause(L, b->source, c);
    }
    if (t == 0)
        latent_ring_send(L, w);
    if (with_keys) {
        to_heads(L, k, &W->heads_k[kt % 2]);
        to_heads(L, v, &W->heads_v[kt % 2]);
    }
    to_heads(L, q, &W->heads_q[t % 2]);
}

static void attend_forward(struct lowering *L, const struct block *b, int t)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    int q_per_kv = W->heads->q_per_kv, kt = t / q_per_kv, last = t % q_per_kv == q_per_kv - 1;
    struct value *o = &a->o[t];
    struct forward_tile f = {.weights = &b->weights->attention,
                             .tile = t,
                             .q = heads_or(L, &a->q[t], &W->heads_q[t % 2]),
                             .k = heads_or(L, &a->k[kt], &W->heads_k[kt % 2]),
                             .v = heads_or(L, &a->v[kt], &W->heads_v[kt % 2]),
                             .o = heads_or(L, o, &W->heads_o[t % 2]),
                             .lse = &a->lse[t]};
    if (kept_keys(L))
        kept_attend(L, b, kt, t % q_per_kv == 0, &f);
    new_tiles(L, f.o);
    value_new(L, f.lse, 0);
    if (L->caches) {
        cache_forward(L, b, &(struct cached_tile){.tile = kt, .is_first = t % q_per_kv == 0}, &f);
    } else if (L->ring > 1) {
        ring_forward(L, &f);
    } else if (f.weights->sinks >= 0) {
        const struct forward_tile sum = sum_begin(L, &f);
        emit_attention_forward(L, 0, &sum);
        sum_end(L, &f, &sum);
    } else {
        emit_attention_forward(L, 0, &f);
    }
    to_tokens(L, f.o, o);
    put_all(L, o);
    value_put(L, f.lse, 0);
    value_drop(L, f.lse, 0);
    value_close_full(L, o);
    value_close_full(L, f.q);
    if (last && !kept_keys(L) && !caches_latents(L, f.weights) && !ring_sends_latents(L, f.weights)) {
        value_close_full(L, f.k);
        value_close_full(L, f.v);
    }
}

/* Tells whether the next tile is prepared before the present one computes. Between ranks the next tile's messages then travel
 * meanwhile. */
static int prepares_ahead(const struct lowering *L)
{
    return L->ulysses * L->ring > 1;
}

static void forward(struct lowering *L, struct block *b)
{
    int ahead = prepares_ahead(L), n = work_of(L, b)->heads->n_q;
    for (int t = 0; t < n + ahead; t++) {
        if (t < n)
            gather_qkv(L, b, t);
        if (t == ahead)
            stage_pass(L, b->layer);
        if (t >= ahead)
            attend_forward(L, b, t - ahead);
    }
    latent_ring_end(L, &b->weights->attention);
}

/* --- Backward --- */

static void prepare_backward(struct lowering *L, const struct block *b, int t)
{
    struct attention_work *W = work_of(L, b);
    value_open_full(L, &W->d_o[t]);
    value_open_full(L, &W->delta[t]);
    for (int c = 0; c < L->n_chunks; c++)
        output_backward(L, b, t, c);
    to_heads(L, &W->d_o[t], &W->heads_do[t % 2]);
    to_heads(L, &W->delta[t], &W->heads_delta[t % 2]);
    gather_qkv(L, b, t);
}

/* Sends a gradient back to the tokens' owners and writes it home. The gradient stays rotated (by rope) until it is used, so that
 * nothing here waits for messages. */
static void finish_gradient(struct lowering *L, struct value *heads, struct value *routed)
{
    to_tokens(L, heads, routed);
    put_all(L, routed);
    value_close_full(L, routed);
}

/* Opens a gradient that will be written as a whole, in a buffer of its own. */
static void new_gradient(struct lowering *L, struct value *v)
{
    value_reset_full(v);
    new_tiles(L, v);
}

static void attend_backward(struct lowering *L, const struct block *b, int t)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = work_of(L, b);
    int q_per_kv = W->heads->q_per_kv, kt = t / q_per_kv, first = t % q_per_kv == 0, last = t % q_per_kv == q_per_kv - 1;
    struct backward_tile g = {.weights = &b->weights->attention,
                              .tile = t,
                              .q = heads_or(L, &a->q[t], &W->heads_q[t % 2]),
                              .k = heads_or(L, &a->k[kt], &W->heads_k[kt % 2]),
                              .v = heads_or(L, &a->v[kt], &W->heads_v[kt % 2]),
                              .d_o = heads_or(L, &W->d_o[t], &W->heads_do[t % 2]),
                              .delta = heads_or(L, &W->delta[t], &W->heads_delta[t % 2]),
                              .lse = &a->lse[t],
                              .dq = heads_or(L, &W->dq[t], &W->heads_dq[t % 2]),
                              .dk = heads_or(L, &W->dk[kt], &W->heads_dk[kt % 2]),
                              .dv = heads_or(L, &W->dv[kt], &W->heads_dv[kt % 2])};
    value_get(L, g.lse, 0);
    new_gradient(L, g.dq);
    const int keys_travel = !ring_sends_latents(L, g.weights),
              adds = kept_keys(L) ? kept_attend_backward(L, b, kt, first, &g) : !first;
    if (first && keys_travel && !kept_keys(L)) {
        new_gradient(L, g.dk);
        new_gradient(L, g.dv);
    }
    if (L->ring > 1)
        ring_backward(L, &g);
    else
        emit_attention_backward(L, 0, &g, adds);
    emit_sink_gradient(L, &g);
    value_close_full(L, g.q);
    value_close_full(L, g.d_o);
    value_close_full(L, g.delta);
    value_drop(L, g.lse, 0);
    if (dq_type(L) != F32) { /* a type that halves the bytes to send */
        value_new(L, &W->dq_low, 0);
        lower_cast(L, &W->dq_low, dq_type(L), g.dq, F32);
        value_drop(L, g.dq, 0);
        g.dq = &W->dq_low;
    }
    finish_gradient(L, g.dq, &W->dq[t]);
    if (!keys_travel)
        return;
    if (last && kept_keys(L)) {
        g.dk = heads_or(L, &W->dk[kt], &W->heads_dk[kt % 2]);
        g.dv = heads_or(L, &W->dv[kt], &W->heads_dv[kt % 2]);
        new_gradient(L, g.dk);
        new_gradient(L, g.dv);
        kept_gradients(L, b, kt, &g);
    } else if (last) {
        value_close_full(L, g.k);
        value_close_full(L, g.v);
    }
    if (last) {
        finish_gradient(L, g.dk, &W->dk[kt]);
        finish_gradient(L, g.dv, &W->dv[kt]);
    }
}

static void gradient(struct lowering *L, struct block *b)
{
    int ahead = prepares_ahead(L), n = work_of(L, b)->heads->n_q;
    for (int c = 0; block_has_gradient(L, b) && c < L->n_chunks; c++)
        attended_gradient(L, b, c);
    for (int c = 0; L->tp > 1 && c < L->n_chunks; c++)
        share_gradient(L, b, c);
    for (int t = 0; t < n + ahead; t++) {
        if (t < n)
            prepare_backward(L, b, t);
        if (t == ahead)
            stage_pass(L, b->layer);
        if (t >= ahead)
            attend_backward(L, b, t - ahead);
    }
    latent_ring_return(L, &b->weights->attention);
}

static void backward(struct lowering *L, struct block *b)
{
    for (int c = 0; c < L->n_chunks; c++)
        qkv_backward(L, b, c);
}

/* --- Creation --- */

/* Returns the elements in a row of a tile of queries; o_cols, k_cols, v_cols: of outputs, keys, values. */
static int64_t q_cols(const struct head_tiles *h)
{
    return h->q * h->dim;
}

static int64_t o_cols(const struct head_tiles *h)
{
    return h->q * h->value;
}

static int64_t k_cols(const struct head_tiles *h)
{
    return h->kv * h->dim;
}

static int64_t v_cols(const struct head_tiles *h)
{
    return h->kv * h->value;
}

static struct value *new_values(struct lowering *L, int n)
{
    return memory_new(L, n, sizeof(struct value));
}

/* Creates lse (log-sum-exp of each softmax), a row for each head and a column for each token whose attention the rank computes. */
static void lse_value(struct lowering *L, struct value *v, int layer, int tile, int heads)
{
    char name[48];
    snprintf(name, sizeof name, "layer%d.lse%d", layer, tile);
    value_create(L, v, name, CLASS_ACT, heads, L->attn_rows * 4, heads,
                 L->duties & DUTY_BACKWARD ? activation_residency(L, layer) : RES_NONE);
}

static void layer_values(struct lowering *L, struct block *b)
{
    enum dtype T = L->s.key.dtype;
    const struct head_tiles *h = heads_of(L, &b->weights->attention);
    const int latent = attends_latents(&b->weights->attention);
    const enum keeping kept = latent ? KEPT_NONE : KEPT_BY_ALPHA, of_keys = kept_keys(L) ? KEPT_NONE : kept;
    struct attention_layer *a = b->values = memory_new(L, 1, sizeof *a);
    if (!a)
        return;
    a->q = new_values(L, h->n_q);
    a->o = new_values(L, h->n_q);
    a->lse = new_values(L, h->n_q);
    a->k = new_values(L, h->n_kv);
    a->v = new_values(L, h->n_kv);
    for (int t = 0; t < h->n_q && L->st == OK; t++) {
        activation_of_layer(L, b, t,
                            &(struct activation){&a->q[t], "q", q_cols(h), T, ROUTED, latent ? latent_q : produce_q, kept});
        activation_of_layer(L, b, t, &(struct activation){&a->o[t], "o", o_cols(h), T, ROUTED});
        lse_value(L, &a->lse[t], b->layer, t, h->q);
    }
    for (int t = 0; t < h->n_kv && L->st == OK; t++) {
        activation_of_layer(L, b, t,
                            &(struct activation){&a->k[t], "k", k_cols(h), T, ROUTED, latent ? latent_k : produce_k, of_keys});
        activation_of_layer(L, b, t,
                            &(struct activation){&a->v[t], "v", v_cols(h), T, ROUTED, latent ? latent_v : produce_v, of_keys});
    }
    if (latent)
        latents_of_layer(L, b);
    gates_of_layer(L, b, produce_gate);
}

static void leave(struct lowering *L, struct block *b)
{
    struct attention_layer *a = b->values;
    for (int t = 0; t < heads_of(L, &b->weights->attention)->n_q; t++)
        value_leave(L, &a->o[t]);
    latents_leave(L, b);
}

/* Creates a value that the layers of a shape share. */
static void work_value(struct lowering *L, const struct attention_work *W, enum residency r, int index, struct activation a)
{
    char text[WORK_NAME];
    a.name = work_name(W, a.name, text);
    activation_of_work(L, r, index, &a);
}

static void gradient_values(struct lowering *L, struct attention_work *W)
{
    const struct head_tiles *h = W->heads;
    enum residency r = L->s.placement.passing;
    W->d_o = new_values(L, h->n_q);
    W->delta = new_values(L, h->n_q);
    W->dq = new_values(L, h->n_q);
    W->dk = new_values(L, h->n_kv);
    W->dv = new_values(L, h->n_kv);
    for (int t = 0; t < h->n_q && L->st == OK; t++) {
        work_value(L, W, RES_NONE, t, (struct activation){&W->d_o[t], "do", o_cols(h), L->s.key.dtype, ROUTED, NULL});
        work_value(L, W, RES_NONE, t, (struct activation){&W->delta[t], "delta", h->q, F32, ROUTED, NULL});
        work_value(L, W, r, t, (struct activation){&W->dq[t], "dq", q_cols(h), dq_type(L), ROUTED, NULL});
    }
    for (int t = 0; t < h->n_kv && L->st == OK; t++) {
        work_value(L, W, r, t, (struct activation){&W->dk[t], "dk", k_cols(h), F32, ROUTED, NULL});
        work_value(L, W, r, t, (struct activation){&W->dv[t], "dv", v_cols(h), F32, ROUTED, NULL});
    }
}

/* Creates the values in the heads layout: two of each, for the tile at work and for the next tile. */
static void heads_values(struct lowering *L, struct attention_work *W)
{
    const int64_t size = dtype_size(L->s.key.dtype), q = q_cols(W->heads), o = o_cols(W->heads), k = k_cols(W->heads),
                  v = v_cols(W->heads);
    for (int i = 0; i < 2 && L->ulysses > 1; i++) {
        static const char *const odd[] = {"", "'"};
        const struct {
            struct value *v;
            const char *name;
            int64_t row_bytes;
        } all[] = {{&W->heads_q[i], "heads.q", q * size},
                   {&W->heads_k[i], "heads.k", k * size},
                   {&W->heads_v[i], "heads.v", v * size},
                   {&W->heads_o[i], "heads.o", o * size},
                   {&W->heads_do[i], "heads.do", o * size},
                   {&W->heads_dq[i], "heads.dq", q * 4},
                   {&W->heads_dk[i], "heads.dk", k * 4},
                   {&W->heads_dv[i], "heads.dv", v * 4},
                   {&W->heads_delta[i], "heads.delta", W->heads->q * 4}};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
            char name[WORK_NAME];
            snprintf(name, sizeof name, "%s%s", all[n].name, odd[i]);
            heads_value(L, W, all[n].v, name, all[n].row_bytes);
        }
    }
    if (dq_type(L) != F32)
        heads_value(L, W, &W->dq_low, "heads.dq.low", q * size);
}

/* Returns how some layer of the shape normalises heads: 0 not at all, 1 each head by itself, 2 all together. */
static int norms_heads(const struct model *m, int shape)
{
    for (int64_t l = 0; l < m->config.layers; l++) {
        const struct attention_block *a = model_attention(m, l);
        if (a && a->shape == shape && (a->q_norm.kind != NORM_NONE || a->v_norm.kind != NORM_NONE))
            return 1 + a->whole;
    }
    return 0;
}

/* Creates the transients of norms of heads. whole: all heads are normalised together. */
static void norm_values(struct lowering *L, struct attention_work *W, int whole)
{
    enum dtype T = L->s.key.dtype;
    const struct head_tiles *h = W->heads;
    int64_t q = whole ? h->all * h->dim : q_cols(h), k = whole ? h->all_kv * h->dim : k_cols(h);
    const struct activation all[] = {{&W->raw_q, "raw_q", q, T, CHUNKS, NULL},
                                     {&W->raw_k, "raw_k", k, T, CHUNKS, NULL},
                                     {&W->draw_q, "draw_q", q, T, CHUNKS, NULL},
                                     {&W->draw_k, "draw_k", k, T, CHUNKS, NULL},
                                     {&W->dnormed_q, "dnormed_q", q, F32, CHUNKS, NULL}};
    const struct activation together[] = {{&W->all_q, "all_q", q, T, CHUNKS, NULL},
                                          {&W->all_k, "all_k", k, T, CHUNKS, NULL},
                                          {&W->dall_q, "dall_q", q, F32, CHUNKS, NULL},
                                          {&W->dall_k, "dall_k", k, F32, CHUNKS, NULL}};
    for (size_t i = 0; L->st == OK && i < sizeof all / sizeof *all; i++)
        work_value(L, W, RES_NONE, -1, all[i]);
    for (size_t i = 0; whole && L->st == OK && i < sizeof together / sizeof *together; i++)
        work_value(L, W, RES_NONE, -1, together[i]);
}

static void chunk_values(struct lowering *L)
{
    struct attention_work *all = L->shared[BLOCK_ATTENTION] = memory_new(L, L->m->n_shapes, sizeof *all);
    for (int i = 0; all && i < L->m->n_shapes; i++) {
        const int norms = norms_heads(L->m, i);
        all[i].heads = &L->heads[i];
        all[i].attended = latent_heads(L, i);
        all[i].caches_latents = cached_latents(&L->s, &L->m->shapes[i]);
        if (i > 0)
            snprintf(all[i].suffix, sizeof all[i].suffix, ".%d.", i + 1);
        if (norms)
            norm_values(L, &all[i], norms > 1);
        if (L->m->shapes[i].kv_latent > 0)
            latents_of_work(L, &all[i], i);
    }
}

static int has_sinks(const struct lowering *L, int shape)
{
    for (int l = 0; l < (int)L->m->config.layers; l++) {
        const struct model_block *b = model_find_block(&L->m->layers[l], BLOCK_ATTENTION);
        if (b && b->attention.shape == shape && b->attention.sinks >= 0)
            return 1;
    }
    return 0;
}

static void tile_values(struct lowering *L)
{
    for (int i = 0; i < L->m->n_shapes; i++) {
        struct attention_work *W = (struct attention_work *)L->shared[BLOCK_ATTENTION] + i;
        gradient_values(L, W);
        gates_of_work(L, W, i);
        heads_values(L, W);
        if (L->ring > 1 || L->caches || has_sinks(L, i))
            sum_create(L, W);
        if (L->ring > 1)
            ring_values_create(L, W);
        latent_ring_create(L, W, i);
        if (L->caches)
            cache_work_create(L, W);
    }
}

const struct block_lowering attention_lowering = {.grad_cuts = projections_grad_cuts,
                                                  .layer_values = layer_values,
                                                  .chunk_values = chunk_values,
                                                  .tile_values = tile_values,
                                                  .produce = produce_attended,
                                                  .forward = forward,
                                                  .leave = leave,
                                                  .gradient = gradient,
                                                  .backward = backward,
                                                  .cache_create = cache_create,
                                                  .cache_bind = cache_bind};
