/* Attention as instructions: per tile of query heads, and between ranks.
 *
 * q, k, v, o and their gradients lie as a rank's tokens need them: routed by member of the ulysses group, member after member,
 * the heads that this member attends (rows m * rows + token). With ulysses > 1 an all-to-all turns that into the member's heads
 * of all the group's tokens ("heads" values); with a single member it is that already. What ring members then do is in ring.c.
 *
 * Source of the layouts, orders and volumes: DeepSpeed-Ulysses (Jacobs et al. 2023). */
#include "plan/lower/blocks/attention.h"

#define DEV TIER_DEVICE

static struct value *tile_of(const struct lowering *L, struct value *of, int l, int t)
{
    return &of[l * L->n_tiles_q + t];
}

static struct value *kv_tile_of(const struct lowering *L, struct value *of, int l, int kt)
{
    return &of[l * L->n_tiles_kv + kt];
}

/* --- Between the group's layouts --- */

static void all_to_all(struct lowering *L, struct value *from, struct value *to)
{
    struct op_attrs *a = emit(L, OP_ALL_TO_ALL, LANE_ULYSSES);
    a->comm.element = 4;
    a->comm.n = from->rows * from->row_bytes / 4;
    a->comm.share = a->comm.n / L->s.ulysses;
    arg_read(L, 0, from, 0, from->rows, DEV);
    arg_write(L, 1, to, 0, to->rows, DEV);
    emit_done(L, 0);
}

/* Makes the heads layout of a routed value whose tiles are all on the device, and closes that; nothing where they are the same.
 */
static void to_heads(struct lowering *L, struct value *routed, struct value *heads)
{
    if (L->s.ulysses == 1)
        return;
    value_new(L, heads, 0);
    all_to_all(L, routed, heads);
    value_close_full(L, routed);
}

static struct value *heads_or(const struct lowering *L, struct value *routed, struct value *heads)
{
    return L->s.ulysses == 1 ? routed : heads;
}

static void new_tiles(struct lowering *L, struct value *v)
{
    if (v->full)
        value_open_full(L, v);
    for (int i = 0; i < v->n_tiles; i++)
        value_new(L, v, i);
}

/* Back to the tokens' owners. */
static void to_tokens(struct lowering *L, struct value *heads, struct value *routed)
{
    if (L->s.ulysses == 1)
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

/* --- The kernel calls --- */

static void attention_attrs(const struct lowering *L, struct op_attrs *a)
{
    a->attn.sq = a->attn.sk = L->attn_rows;
    a->attn.hq = L->s.head_tile;
    a->attn.hk = L->kv_heads_tile;
    a->attn.head_dim = (int32_t)L->m->config.head_dim;
    a->attn.dtype = (int32_t)L->s.dtype;
    a->attn.scale = 1.0f / __builtin_sqrtf((float)L->m->config.head_dim);
}

/* Pairs of one ring step, the work being balanced: the planner's estimate for one long document; several attend fewer. */
static double planned_pairs(const struct lowering *L)
{
    double n = (double)L->s.seq_len, w = L->m->config.window > 0 ? (double)min_i64(L->m->config.window, L->s.seq_len) : n;
    return (n * w - w * (w - 1) / 2) / ((double)L->s.ring * L->s.ring);
}

static void arg_mask(struct lowering *L, int arg, int s)
{
    int64_t first = s * L->attn_rows;
    arg_read(L, arg, &L->lo, first, first + L->attn_rows, DEV);
    arg_read(L, arg + 1, &L->hi, first, first + L->attn_rows, DEV);
}

/* The masks of a ring step are fetched for each use; a single one stays. */
static void get_mask(struct lowering *L, int s)
{
    value_get(L, &L->lo, s);
    value_get(L, &L->hi, s);
}

static void drop_mask(struct lowering *L, int s)
{
    if (L->s.ring == 1)
        return;
    value_drop(L, &L->lo, s);
    value_drop(L, &L->hi, s);
}

void emit_attention_forward(struct lowering *L, int s, struct value *o, struct value *lse, struct value *q, struct value *k,
                            struct value *v)
{
    int64_t n = L->attn_rows;
    get_mask(L, s);
    struct op_attrs *a = emit(L, OP_ATTN_FWD, LANE_COMPUTE);
    attention_attrs(L, a);
    under_predicate(L, ring_attends(s));
    arg_write(L, 0, o, 0, n, DEV);
    arg_write(L, 1, lse, 0, lse->rows, DEV);
    arg_read(L, 2, q, 0, n, DEV);
    arg_read(L, 3, k, 0, n, DEV);
    arg_read(L, 4, v, 0, n, DEV);
    arg_mask(L, 5, s);
    emit_done(L, planned_pairs(L));
    drop_mask(L, s);
}

void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate)
{
    int64_t n = L->attn_rows;
    get_mask(L, s);
    struct op_attrs *a = emit(L, OP_ATTN_BWD, LANE_COMPUTE);
    attention_attrs(L, a);
    a->attn.accumulate = accumulate;
    under_predicate(L, ring_attends(s));
    arg_write(L, 0, b->dq, 0, n, DEV);
    (accumulate ? arg_update : arg_write)(L, 1, b->dk, 0, n, DEV);
    (accumulate ? arg_update : arg_write)(L, 2, b->dv, 0, n, DEV);
    arg_read(L, 3, b->q, 0, n, DEV);
    arg_read(L, 4, b->k, 0, n, DEV);
    arg_read(L, 5, b->v, 0, n, DEV);
    arg_read(L, 6, b->delta, 0, n, DEV);
    arg_read(L, 7, b->lse, 0, b->lse->rows, DEV);
    arg_read(L, 8, b->d_o, 0, n, DEV);
    arg_mask(L, 9, s);
    emit_done(L, planned_pairs(L));
    drop_mask(L, s);
}

/* --- Forward --- */

/* q of tile t, and k and v with their first query tile: present chunk by chunk (fetched or computed), then in the heads layout.
 */
static void gather_qkv(struct lowering *L, int l, int t)
{
    int kt = t / L->q_per_kv;
    struct value *q = tile_of(L, L->q, l, t), *k = kv_tile_of(L, L->k, l, kt), *v = kv_tile_of(L, L->v, l, kt);
    int with_keys = L->s.ulysses == 1 || t % L->q_per_kv == 0;
    value_open_full(L, q);
    if (with_keys) {
        value_open_full(L, k);
        value_open_full(L, v);
    }
    for (int c = 0; c < L->n_chunks; c++) {
        for (int m = 0; m < L->s.ulysses; m++) {
            int i = m * L->n_chunks + c;
            value_get(L, q, i);
            if (with_keys) {
                value_get(L, k, i);
                value_get(L, v, i);
            }
        }
        value_drop(L, &L->n1, c);
        value_pause(L, &L->x[l], c);
    }
    if (with_keys) {
        to_heads(L, k, &L->heads_k[kt % 2]);
        to_heads(L, v, &L->heads_v[kt % 2]);
    }
    to_heads(L, q, &L->heads_q[t % 2]);
}

static void attend_forward(struct lowering *L, int l, int t)
{
    int kt = t / L->q_per_kv, last = t % L->q_per_kv == L->q_per_kv - 1;
    struct value *lse = tile_of(L, L->lse, l, t), *o = tile_of(L, L->o, l, t);
    struct value *q = heads_or(L, tile_of(L, L->q, l, t), &L->heads_q[t % 2]), *ho = heads_or(L, o, &L->heads_o[t % 2]);
    struct value *k = heads_or(L, kv_tile_of(L, L->k, l, kt), &L->heads_k[kt % 2]);
    struct value *v = heads_or(L, kv_tile_of(L, L->v, l, kt), &L->heads_v[kt % 2]);
    new_tiles(L, ho);
    value_new(L, lse, 0);
    if (L->s.ring > 1)
        ring_forward(L, ho, lse, q, k, v);
    else
        emit_attention_forward(L, 0, ho, lse, q, k, v);
    to_tokens(L, ho, o);
    put_all(L, o);
    value_put(L, lse, 0);
    value_drop(L, lse, 0);
    value_close_full(L, o);
    value_close_full(L, q);
    if (last) {
        value_close_full(L, k);
        value_close_full(L, v);
    }
}

/* Between ranks the next tile is made ready first: its messages travel while this one computes. */
static int prepares_ahead(const struct lowering *L)
{
    return L->s.ulysses * L->s.ring > 1;
}

void lower_attention_forward(struct lowering *L, int l)
{
    int ahead = prepares_ahead(L);
    for (int t = 0; t < L->n_tiles_q + ahead; t++) {
        if (t < L->n_tiles_q)
            gather_qkv(L, l, t);
        if (t >= ahead)
            attend_forward(L, l, t - ahead);
    }
}

/* --- Backward --- */

/* do and delta of one chunk, and what the output projection's weights learn from it. */
static void output_backward(struct lowering *L, int l, int t, int c)
{
    const struct model_layer *layer = &L->m->layers[l];
    int64_t width = L->s.head_tile * L->m->config.head_dim;
    enum dtype T = L->s.dtype;
    struct value *o = tile_of(L, L->o, l, t), *d_o = &L->d_o[t], *delta = &L->delta[t];
    int64_t x0 = L->dx.tiles[c].row0, x1 = L->dx.tiles[c].row1;
    value_get(L, &L->dx, c);
    for (int m = 0; m < L->s.ulysses; m++) {
        int i = m * L->n_chunks + c;
        int64_t r0 = o->tiles[i].row0, r1 = o->tiles[i].row1, first = routed_head(L, m, t) * L->m->config.head_dim;
        value_get(L, o, i);
        value_new(L, d_o, i);
        lower_linear_dx(L, &layer->o, first, width, d_o, r0, r1, T, &L->dx, x0, T, 0);
        lower_linear_dw(L, &layer->o, first, width, &L->dx, x0, x1, T, o, r0, T);
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
        lower_bias_grad(L, &layer->o, &L->dx, T, x0, x1);
    value_drop(L, &L->dx, c);
}

static void prepare_backward(struct lowering *L, int l, int t)
{
    value_open_full(L, &L->d_o[t]);
    value_open_full(L, &L->delta[t]);
    for (int c = 0; c < L->n_chunks; c++)
        output_backward(L, l, t, c);
    to_heads(L, &L->d_o[t], &L->heads_do[t % 2]);
    to_heads(L, &L->delta[t], &L->heads_delta[t % 2]);
    gather_qkv(L, l, t);
}

/* Back to the tokens, and home. What was rotated stays so until it is used: nothing here waits for the messages. */
static void finish_gradient(struct lowering *L, struct value *heads, struct value *routed)
{
    to_tokens(L, heads, routed);
    put_all(L, routed);
    value_close_full(L, routed);
}

/* A gradient to be written as a whole, in a buffer of its own. */
static void new_gradient(struct lowering *L, struct value *v)
{
    value_reset_full(v);
    new_tiles(L, v);
}

static void attend_backward(struct lowering *L, int l, int t)
{
    int kt = t / L->q_per_kv, first = t % L->q_per_kv == 0, last = t % L->q_per_kv == L->q_per_kv - 1;
    struct backward_tile b = {.q = heads_or(L, tile_of(L, L->q, l, t), &L->heads_q[t % 2]),
                              .k = heads_or(L, kv_tile_of(L, L->k, l, kt), &L->heads_k[kt % 2]),
                              .v = heads_or(L, kv_tile_of(L, L->v, l, kt), &L->heads_v[kt % 2]),
                              .d_o = heads_or(L, &L->d_o[t], &L->heads_do[t % 2]),
                              .delta = heads_or(L, &L->delta[t], &L->heads_delta[t % 2]),
                              .lse = tile_of(L, L->lse, l, t),
                              .dq = heads_or(L, &L->dq[t], &L->heads_dq[t % 2]),
                              .dk = heads_or(L, &L->dk[kt], &L->heads_dk[kt % 2]),
                              .dv = heads_or(L, &L->dv[kt], &L->heads_dv[kt % 2])};
    value_get(L, b.lse, 0);
    new_gradient(L, b.dq);
    if (first) {
        new_gradient(L, b.dk);
        new_gradient(L, b.dv);
    }
    if (L->s.ring > 1)
        ring_backward(L, &b);
    else
        emit_attention_backward(L, 0, &b, !first);
    value_close_full(L, b.q);
    value_close_full(L, b.d_o);
    value_close_full(L, b.delta);
    value_drop(L, b.lse, 0);
    if (dq_type(L) != F32) { /* fewer bytes to send */
        value_new(L, &L->dq_low, 0);
        lower_cast(L, &L->dq_low, dq_type(L), b.dq, F32);
        value_drop(L, b.dq, 0);
        b.dq = &L->dq_low;
    }
    finish_gradient(L, b.dq, &L->dq[t]);
    if (last) {
        value_close_full(L, b.k);
        value_close_full(L, b.v);
        finish_gradient(L, b.dk, &L->dk[kt]);
        finish_gradient(L, b.dv, &L->dv[kt]);
    }
}

void lower_attention_backward(struct lowering *L, int l)
{
    int ahead = prepares_ahead(L);
    for (int t = 0; t < L->n_tiles_q + ahead; t++) {
        if (t < L->n_tiles_q)
            prepare_backward(L, l, t);
        if (t >= ahead)
            attend_backward(L, l, t - ahead);
    }
}

/* --- Creation --- */

void heads_value(struct lowering *L, struct value *v, const char *name, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_WORK, L->attn_rows, row_bytes, L->attn_rows, RES_NONE);
}

static struct value *all_heads_values(struct lowering *L, int i)
{
    struct value *all[] = {&L->heads_q[0],   &L->heads_q[1],  &L->heads_k[0],     &L->heads_k[1],     &L->heads_v[0],
                           &L->heads_v[1],   &L->heads_o[0],  &L->heads_o[1],     &L->heads_do[0],    &L->heads_do[1],
                           &L->heads_dq[0],  &L->heads_dq[1], &L->heads_dk[0],    &L->heads_dk[1],    &L->heads_dv[0],
                           &L->heads_dv[1],  &L->dq_low,      &L->heads_delta[0], &L->heads_delta[1], &L->ring_k,
                           &L->ring_v,       &L->o_part,      &L->o_sum,          &L->lse_part,       &L->dq_part,
                           &L->dk_part,      &L->dv_part,     &L->returned_k[0],  &L->returned_k[1],  &L->returned_v[0],
                           &L->returned_v[1]};
    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

void attention_values_create(struct lowering *L)
{
    int64_t size = dtype_size(L->s.dtype), q = L->s.head_tile * L->m->config.head_dim,
            kv = L->kv_heads_tile * L->m->config.head_dim;
    for (int i = 0; i < 2 && L->s.ulysses > 1; i++) {
        static const char *const odd[] = {"", "'"};
        const struct {
            struct value *v;
            const char *name;
            int64_t row_bytes;
        } all[] = {{&L->heads_q[i], "heads.q", q * size},
                   {&L->heads_k[i], "heads.k", kv * size},
                   {&L->heads_v[i], "heads.v", kv * size},
                   {&L->heads_o[i], "heads.o", q * size},
                   {&L->heads_do[i], "heads.do", q * size},
                   {&L->heads_dq[i], "heads.dq", q * 4},
                   {&L->heads_dk[i], "heads.dk", kv * 4},
                   {&L->heads_dv[i], "heads.dv", kv * 4},
                   {&L->heads_delta[i], "heads.delta", L->s.head_tile * 4}};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            char name[48];
            snprintf(name, sizeof name, "%s%s", all[k].name, odd[i]);
            heads_value(L, all[k].v, name, all[k].row_bytes);
        }
    }
    if (dq_type(L) != F32)
        heads_value(L, &L->dq_low, "heads.dq.low", q * size);
    if (L->s.ring > 1)
        ring_values_create(L);
}

void attention_values_destroy(struct lowering *L)
{
    for (int i = 0; all_heads_values(L, i); i++)
        value_destroy(all_heads_values(L, i));
}
