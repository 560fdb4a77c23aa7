#include "plan/lower/blocks/latent_ring.h"

#include "plan/lower/blocks/latent_heads.h"
#include "plan/lower/blocks/ring_parts.h"
#include "plan/lower/emit.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

int ring_sends_latents(const struct lowering *L, const struct attention_block *w)
{
    return heads_send_latents(w, &L->s.key.mesh);
}

/* --- Rows of all members: those of the member s places before this one are block s --- */

static struct ring_rows block_of(const struct lowering *L, struct value *v, int s)
{
    return (struct ring_rows){v, s * L->attn_rows, L->attn_rows};
}

void latent_ring_begin(struct lowering *L, const struct attention_block *w)
{
    struct attention_work *W = attention_work(L, w);
    if (!ring_sends_latents(L, w))
        return;
    value_open_full(L, &W->ring_latents);
    value_open_full(L, &W->ring_rotated);
}

void latent_ring_put(struct lowering *L, const struct block *b, int c)
{
    const struct attention_block *w = &b->weights->attention;
    const enum dtype T = L->s.key.dtype;
    struct attention_layer *a = b->values;
    struct attention_work *W = attention_work(L, w);
    const struct tile *t = &a->kv_latent.tiles[c];
    if (!ring_sends_latents(L, w))
        return;
    value_get(L, &a->kv_latent, c);
    value_get(L, &a->rotated, c);
    value_new(L, &W->ring_latents, c);
    lower_head_norm_forward(L, &w->kv_a_norm, &W->ring_latents, t->row0, &a->kv_latent, t->row0, t->row1 - t->row0,
                            (struct heads){0, 0, 0});
    value_new(L, &W->ring_rotated, c);
    lower_cast_rows(L, &W->ring_rotated, t->row0, T, &a->rotated, t->row0, T, t->row1 - t->row0);
}

void latent_ring_send(struct lowering *L, const struct attention_block *w)
{
    struct attention_work *W = attention_work(L, w);
    for (int s = 1; ring_sends_latents(L, w) && s < L->ring; s++) {
        struct value *const all[] = {&W->ring_latents, &W->ring_rotated};
        for (int i = 0; i < 2; i++)
            ring_exchange(L, block_of(L, all[i], 0), block_of(L, all[i], s), s, ring_is_attended(L, w, s), ring_attends(L, w, s),
                          1);
    }
}

void latent_ring_end(struct lowering *L, const struct attention_block *w)
{
    struct attention_work *W = attention_work(L, w);
    if (!ring_sends_latents(L, w))
        return;
    value_close_full(L, &W->ring_latents);
    value_close_full(L, &W->ring_rotated);
}

/* --- Tiles of heads --- */

static struct latent_tile tile_of(struct lowering *L, const struct attention_block *w, int tile, int s, struct value *own)
{
    struct attention_work *W = attention_work(L, w);
    return (struct latent_tile){.weights = w,
                                .tile = tile,
                                .normed = &W->ring_latents,
                                .rotated = &W->ring_rotated,
                                .row = s * L->attn_rows,
                                .rows = L->attn_rows,
                                .own = own};
}

void latent_ring_expand(struct lowering *L, const struct attention_block *w, int tile, int s)
{
    struct attention_work *W = attention_work(L, w);
    const struct latent_tile x = tile_of(L, w, tile, s, &W->ring_own);
    L->predicate = ring_attends(L, w, s);
    latent_make_keys(L, &x, &W->ring_k, 0);
    latent_make_values(L, &x, &W->ring_v, 0);
    L->predicate = 0;
}

/* Runs for the rank's own block first, so that the first write of a map's gradient is under no predicate. */
void latent_ring_gradients(struct lowering *L, const struct attention_block *w, int tile, int s)
{
    struct attention_work *W = attention_work(L, w);
    const struct latent_tile x = tile_of(L, w, tile, s, &W->ring_down);
    if (tile == 0) {
        value_new(L, &W->ring_dlatents, s);
        value_new(L, &W->ring_drotated, s);
    }
    L->predicate = ring_attends(L, w, s);
    latent_keys_back(L, &x, &W->dk_part, 0, &W->ring_dlatents, &W->ring_drotated, tile > 0);
    latent_values_back(L, &x, &W->dv_part, 0, &W->ring_dlatents);
    L->predicate = 0;
    value_drop(L, &W->dk_part, 0);
    value_drop(L, &W->dv_part, 0);
}

/* --- Gradients of latents --- */

/* Adds what other members returned of step s. */
static void add_returned(struct lowering *L, const struct attention_block *w, int s)
{
    struct attention_work *W = attention_work(L, w);
    ring_add(L, block_of(L, &W->ring_dlatents, 0), ring_all(&W->returned_latents[s % 2]), ring_is_attended(L, w, s));
    ring_add(L, block_of(L, &W->ring_drotated, 0), ring_all(&W->returned_rotated[s % 2]), ring_is_attended(L, w, s));
}

/* Copies this rank's rows into row chunks, which stay until the maps to latents are visited. */
static void leave_chunks(struct lowering *L, struct value *chunks, struct value *sum)
{
    for (int c = 0; c < L->n_chunks; c++) {
        const struct tile *t = &chunks->tiles[c];
        value_new(L, chunks, c);
        lower_cast_rows(L, chunks, t->row0, F32, sum, t->row0, F32, t->row1 - t->row0);
        value_put(L, chunks, c);
        value_drop(L, chunks, c);
    }
}

void latent_ring_return(struct lowering *L, const struct attention_block *w)
{
    struct attention_work *W = attention_work(L, w);
    if (!ring_sends_latents(L, w))
        return;
    latent_ring_end(L, w);
    for (int s = 1; s < L->ring; s++) {
        const int send_if = ring_attends(L, w, s), recv_if = ring_is_attended(L, w, s);
        ring_exchange(L, block_of(L, &W->ring_dlatents, s), ring_all(&W->returned_latents[s % 2]), -s, send_if, recv_if, 0);
        ring_exchange(L, block_of(L, &W->ring_drotated, s), ring_all(&W->returned_rotated[s % 2]), -s, send_if, recv_if, 0);
        value_drop(L, &W->ring_dlatents, s);
        value_drop(L, &W->ring_drotated, s);
        if (s > 1)
            add_returned(L, w, s - 1);
    }
    add_returned(L, w, L->ring - 1);
    leave_chunks(L, &W->dkv_normed, &W->ring_dlatents);
    leave_chunks(L, &W->d_rotated, &W->ring_drotated);
    value_drop(L, &W->ring_dlatents, 0);
    value_drop(L, &W->ring_drotated, 0);
}

/* --- Creation --- */

int latent_ring_needed(const struct lowering *L, int shape)
{
    for (int64_t l = 0; l < L->m->config.layers; l++) {
        const struct attention_block *a = model_attention(L->m, l);
        if (a && a->shape == shape && ring_sends_latents(L, a))
            return 1;
    }
    return 0;
}

/* Creates rows of all members: this rank's are cut into row chunks. */
static void latents_value(struct lowering *L, const struct attention_work *W, struct value *v, const char *name,
                          int64_t row_bytes)
{
    char text[WORK_NAME];
    int n = 0;
    int64_t *cuts = memory_new(L, L->n_chunks + L->ring, sizeof *cuts);
    if (!cuts)
        return;
    for (int c = 0; c < L->n_chunks; c++)
        cuts[n++] = c * L->s.key.row_chunk;
    for (int s = 1; s <= L->ring; s++)
        cuts[n++] = s * L->attn_rows;
    value_create_cuts(L, v, work_name(W, name, text), CLASS_WORK, row_bytes, cuts, n - 1, RES_NONE);
    v->full = 1;
}

static void gradient_value(struct lowering *L, const struct attention_work *W, struct value *v, const char *name, int64_t cols)
{
    char text[WORK_NAME];
    value_create(L, v, work_name(W, name, text), CLASS_WORK, L->ring * L->attn_rows, cols * dtype_size(F32), L->attn_rows,
                 RES_NONE);
}

void latent_ring_create(struct lowering *L, struct attention_work *W, int shape)
{
    const struct attention_shape *x = &L->m->shapes[shape];
    const int64_t size = dtype_size(L->s.key.dtype), own = W->heads->kv * latent_own_dim(x);
    if (!latent_ring_needed(L, shape))
        return;
    latents_value(L, W, &W->ring_latents, "ring.latents", x->kv_latent * size);
    latents_value(L, W, &W->ring_rotated, "ring.rotated", x->rotated * size);
    heads_value(L, W, &W->ring_own, "ring.keys_own", own * size);
    heads_value(L, W, &W->ring_down, "ring.dkeys_own", own * dtype_size(F32));
    gradient_value(L, W, &W->ring_dlatents, "ring.dlatents", x->kv_latent);
    gradient_value(L, W, &W->ring_drotated, "ring.drotated", x->rotated);
    for (int i = 0; i < 2; i++) {
        heads_value(L, W, &W->returned_latents[i], i ? "ring.dlatents_returned'" : "ring.dlatents_returned",
                    x->kv_latent * dtype_size(F32));
        heads_value(L, W, &W->returned_rotated[i], i ? "ring.drotated_returned'" : "ring.drotated_returned",
                    x->rotated * dtype_size(F32));
    }
}
