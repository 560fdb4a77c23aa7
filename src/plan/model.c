/* The layers of a model as instructions, forward and backward, tile by tile. */
#include "plan/maps.h"

#define DEV TIER_DEVICE

/* q, k or v of one chunk: norm, projection, rope. The normalised chunk is shared by what a visit computes. */
static void produce_projection(struct lowering *L, struct value *v, int c)
{
    const struct model_layer *layer = &L->m->layers[v->layer];
    struct model_linear w =
        v->kind == VALUE_Q ? q_slice(L, v->layer, v->index) : kv_slice(L, v->kind == VALUE_K ? &layer->k : &layer->v, v->index);
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    if (!value_on_device(&L->n1, c)) {
        value_get(L, &L->x[v->layer], c);
        lower_norm_forward(L, &layer->norm1, &L->n1, &L->x[v->layer], c);
    }
    value_new(L, v, c);
    lower_linear(L, &w, 0, w.in, v, r0, r1, L->s.dtype, &L->n1, L->s.dtype, 0);
    lower_bias(L, &w, v, r0, r1);
    if (v->kind != VALUE_V)
        lower_rope(L, v, r0, r1, (int)(w.out / L->m->config.head_dim), L->s.dtype, 0);
}

static void produce_xmid(struct lowering *L, struct value *v, int c)
{
    const struct model_layer *layer = &L->m->layers[v->layer];
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1, width = L->s.head_tile * L->m->config.head_dim;
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++) {
        struct value *o = &L->o[v->layer * L->n_tiles_q + t];
        value_get(L, o, c);
        lower_linear(L, &layer->o, t * width, width, &L->acc, r0, r1, F32, o, L->s.dtype, t > 0);
        value_drop(L, o, c);
    }
    value_get(L, &L->x[v->layer], c);
    lower_add(L, v, &L->x[v->layer], &L->acc, &layer->o, c);
    value_drop(L, &L->acc, c);
}

/* gate (none for GELU) and up of one chunk, from the normalised x_mid. */
static void produce_mlp(struct lowering *L, struct value *v, int c)
{
    const struct model_layer *layer = &L->m->layers[v->layer];
    const struct model_linear *w = v->kind == VALUE_GATE ? &layer->gate : &layer->up;
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    if (!value_on_device(&L->n2, c)) {
        value_get(L, &L->xmid[v->layer], c);
        lower_norm_forward(L, &layer->norm2, &L->n2, &L->xmid[v->layer], c);
    }
    value_new(L, v, c);
    lower_linear(L, w, 0, w->in, v, r0, r1, L->s.dtype, &L->n2, L->s.dtype, 0);
    lower_bias(L, w, v, r0, r1);
}

void lower_value_produce(struct lowering *L, struct value *v, int tile)
{
    switch (v->kind) {
    case VALUE_Q:
    case VALUE_K:
    case VALUE_V:
        produce_projection(L, v, tile);
        return;
    case VALUE_XMID:
        produce_xmid(L, v, tile);
        return;
    case VALUE_GATE:
    case VALUE_UP:
        produce_mlp(L, v, tile);
        return;
    case VALUE_TEMP:
        if (L->st == OK)
            L->st = status_fail(ERR_CORRUPT, "planner: %s, rows from %lld, layer %d, phase %c, is needed but nowhere",
                                L->p->tensors[v->tensor].name, (long long)v->tiles[tile].row0, L->layer, L->phase);
        return;
    }
}

static struct value *q_of(struct lowering *L, int l, int t)
{
    return &L->q[l * L->n_tiles_q + t];
}
static struct value *o_of(struct lowering *L, int l, int t)
{
    return &L->o[l * L->n_tiles_q + t];
}
static struct value *lse_of(struct lowering *L, int l, int t)
{
    return &L->lse[l * L->n_tiles_q + t];
}
static struct value *k_of(struct lowering *L, int l, int kt)
{
    return &L->k[l * L->n_tiles_kv + kt];
}
static struct value *v_of(struct lowering *L, int l, int kt)
{
    return &L->v[l * L->n_tiles_kv + kt];
}

static void attention_attrs(const struct lowering *L, struct op_attrs *a)
{
    a->attn.sq = a->attn.sk = L->s.seq_len;
    a->attn.hq = L->s.head_tile;
    a->attn.hk = L->kv_heads_tile;
    a->attn.head_dim = (int32_t)L->m->config.head_dim;
    a->attn.dtype = (int32_t)L->s.dtype;
    a->attn.scale = 1.0f / __builtin_sqrtf((float)L->m->config.head_dim);
}

/* Causal pairs: the planner's estimate; documents attend fewer. */
static double planned_pairs(const struct lowering *L)
{
    double s = (double)L->s.seq_len;
    return s * (s + 1) / 2;
}

/* Opens q (tile t) and k, v (its kv tile) and makes all their chunks present: fetched or computed, chunk by chunk. */
static void gather_qkv(struct lowering *L, int l, int t)
{
    int kt = t / L->q_per_kv;
    struct value *q = q_of(L, l, t), *k = k_of(L, l, kt), *v = v_of(L, l, kt);
    value_open_full(L, q);
    value_open_full(L, k);
    value_open_full(L, v);
    for (int c = 0; c < L->n_chunks; c++) {
        value_get(L, q, c);
        value_get(L, k, c);
        value_get(L, v, c);
        value_drop(L, &L->n1, c);
        value_drop(L, &L->x[l], c);
    }
}

static void attention_forward(struct lowering *L, int l, int t)
{
    int kt = t / L->q_per_kv;
    int64_t S = L->s.seq_len;
    struct value *q = q_of(L, l, t), *k = k_of(L, l, kt), *v = v_of(L, l, kt), *o = o_of(L, l, t), *lse = lse_of(L, l, t);
    gather_qkv(L, l, t);
    value_open_full(L, o);
    for (int c = 0; c < L->n_chunks; c++)
        value_new(L, o, c);
    value_new(L, lse, 0);
    struct op_attrs *a = emit(L, OP_ATTN_FWD, LANE_COMPUTE);
    attention_attrs(L, a);
    arg_write(L, 0, o, 0, S, DEV);
    arg_write(L, 1, lse, 0, lse->rows, DEV);
    arg_read(L, 2, q, 0, S, DEV);
    arg_read(L, 3, k, 0, S, DEV);
    arg_read(L, 4, v, 0, S, DEV);
    arg_read(L, 5, &L->lo, 0, S, DEV);
    arg_read(L, 6, &L->hi, 0, S, DEV);
    emit_done(L, planned_pairs(L));
    for (int c = 0; c < L->n_chunks; c++)
        value_put(L, o, c);
    value_put(L, lse, 0);
    value_drop(L, lse, 0);
    value_close_full(L, o);
    value_close_full(L, q);
    if (t % L->q_per_kv == L->q_per_kv - 1) {
        value_close_full(L, k);
        value_close_full(L, v);
    }
}

/* act = SwiGLU(gate, up) or GELU(up) */
static void lower_activation(struct lowering *L, int l, int c)
{
    int64_t r0 = L->up[l].tiles[c].row0, r1 = L->up[l].tiles[c].row1;
    int gated = L->m->layers[l].gate.weight >= 0;
    value_new(L, &L->act, c);
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU : OP_GELU, LANE_COMPUTE);
    a->act.rows = r1 - r0;
    a->act.dim = L->m->config.ffn;
    a->act.dtype = (int32_t)L->s.dtype;
    a->act.kind = gated ? 0 : (int32_t)L->m->config.gelu;
    arg_write(L, 0, &L->act, r0, r1, DEV);
    if (gated)
        arg_read(L, 1, &L->gate[l], r0, r1, DEV);
    arg_read(L, gated ? 2 : 1, &L->up[l], r0, r1, DEV);
    emit_done(L, 0);
}

static void drop_mlp(struct lowering *L, int l, int c)
{
    struct value *all[] = {&L->x[l], &L->xmid[l], &L->n2, &L->gate[l], &L->up[l], &L->act, &L->acc};
    for (int i = 0; i < 7; i++)
        if (all[i]->tiles)
            value_drop(L, all[i], c);
}

static void mlp_forward(struct lowering *L, int l, int c)
{
    const struct model_layer *layer = &L->m->layers[l];
    int64_t r0 = L->x[l].tiles[c].row0, r1 = L->x[l].tiles[c].row1;
    value_get(L, &L->xmid[l], c);
    if (layer->gate.weight >= 0)
        value_get(L, &L->gate[l], c);
    value_get(L, &L->up[l], c);
    value_drop(L, &L->n2, c);
    lower_activation(L, l, c);
    value_new(L, &L->acc, c);
    lower_linear(L, &layer->down, 0, layer->down.in, &L->acc, r0, r1, F32, &L->act, L->s.dtype, 0);
    lower_add(L, &L->x[l + 1], &L->xmid[l], &L->acc, &layer->down, c);
    value_put(L, &L->x[l + 1], c);
    drop_mlp(L, l, c);
    if (l + 1 < (int)L->m->config.layers) /* the loss follows the last layer chunk by chunk */
        value_drop(L, &L->x[l + 1], c);
}

static void lower_embed(struct lowering *L, int c)
{
    struct value *x = &L->x[0];
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, x, c);
    struct op_attrs *a = emit(L, OP_EMBED, LANE_COMPUTE);
    a->embed.rows = r1 - r0;
    a->embed.dim = L->m->config.dim;
    a->embed.vocab = L->m->config.vocab;
    a->embed.max_pos = L->m->pos_embed >= 0 ? L->m->config.max_positions : 0;
    a->embed.dtype = (int32_t)L->s.dtype;
    arg_write(L, 0, x, r0, r1, DEV);
    arg_param(L, 1, L->m->embed);
    arg_read(L, 2, &L->tokens, r0, r1, DEV);
    if (L->m->pos_embed >= 0) {
        arg_param(L, 3, L->m->pos_embed);
        arg_read(L, 4, &L->positions, r0, r1, DEV);
    }
    emit_done(L, 0);
    value_put(L, x, c);
    value_drop(L, x, c);
}

static int head_unit(const struct lowering *L)
{
    return param_of(L, L->m->head.weight)->unit;
}

/* Loss tiles of one chunk: logits, loss and their gradient in one pass, then the gradient of the final norm. */
static void lower_loss_chunk(struct lowering *L, int c, int gradient)
{
    struct value *x = &L->x[L->m->config.layers];
    const struct model_linear *head = &L->m->head;
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1, vocab = L->m->config.vocab;
    value_get(L, x, c);
    lower_norm_forward(L, &L->m->final_norm, &L->final_n, x, c);
    int dn_buffer = gradient ? buffer_new(L, TIER_DEVICE, (r1 - r0) * L->dn.row_bytes, CLASS_WORK) : -1;
    for (int i = value_tile_at(&L->logits, r0); i < L->logits.n_tiles && L->logits.tiles[i].row0 < r1; i++) {
        int64_t a0 = L->logits.tiles[i].row0, a1 = L->logits.tiles[i].row1;
        value_new(L, &L->logits, i);
        lower_linear(L, head, 0, head->in, &L->logits, a0, a1, F32, &L->final_n, L->s.dtype, 0);
        value_new(L, &L->loss, i);
        struct op_attrs *a = emit(L, OP_LOSS, LANE_COMPUTE);
        a->loss.rows = a1 - a0;
        a->loss.vocab = vocab;
        a->loss.gradient = gradient;
        (gradient ? arg_update : arg_read)(L, 0, &L->logits, a0, a1, DEV);
        arg_write(L, 1, &L->loss, i, i + 1, DEV);
        arg_read(L, 2, &L->targets, a0, a1, DEV);
        arg_read(L, 3, &L->record, 0, 1, DEV);
        emit_done(L, 0);
        if (gradient) {
            L->dn.tiles[i].place[DEV] = (struct place){dn_buffer, (a0 - r0) * L->dn.row_bytes};
            lower_linear_dx(L, head, 0, head->in, &L->dn, a0, a1, F32, &L->logits, F32, 0);
            lower_linear_dw(L, head, 0, head->in, &L->logits, F32, &L->final_n, L->s.dtype, a0, a1);
        }
        value_drop(L, &L->logits, i);
    }
    if (gradient) {
        value_new(L, &L->dx, c);
        struct op_attrs *f = emit(L, OP_FILL, LANE_COMPUTE);
        f->fill.bytes = (r1 - r0) * L->dx.row_bytes;
        arg_write(L, 0, &L->dx, r0, r1, DEV);
        emit_done(L, 0);
        lower_norm_backward(L, &L->m->final_norm, x, &L->dn, c);
        value_put(L, &L->dx, c);
        value_drop(L, &L->dx, c);
        for (int i = value_tile_at(&L->dn, r0); i < L->dn.n_tiles && L->dn.tiles[i].row0 < r1; i++)
            value_drop(L, &L->dn, i);
    }
    value_drop(L, &L->final_n, c);
    value_drop(L, x, c);
}

void lower_forward(struct lowering *L)
{
    int layers = (int)L->m->config.layers, last = L->m->n_units - 1, gradient = (L->role & ROLE_BACKWARD) != 0;
    L->phase = 'f';
    L->layer = 0;
    unit_fetch(L, 0);
    for (int c = 0; c < L->n_chunks; c++)
        lower_embed(L, c);
    unit_drop(L, 0);
    for (int l = 0; l < layers; l++) {
        L->layer = l + 1;
        unit_fetch(L, l + 1);
        for (int t = 0; t < L->n_tiles_q; t++)
            attention_forward(L, l, t);
        if (l < layers - 1)
            for (int c = 0; c < L->n_chunks; c++)
                mlp_forward(L, l, c);
        else { /* the last layer's chunks go straight into the loss */
            unit_fetch(L, last);
            unit_fetch(L, head_unit(L));
            if (gradient) {
                grads_begin(L, last);
                if (head_unit(L) != last)
                    grads_begin(L, head_unit(L));
            }
            for (int c = 0; c < L->n_chunks; c++) {
                L->phase = 'f';
                L->layer = l + 1;
                mlp_forward(L, l, c);
                L->phase = 'l';
                L->layer = last;
                lower_loss_chunk(L, c, gradient);
            }
        }
        unit_drop(L, l + 1);
    }
    unit_drop(L, last);
    unit_drop(L, head_unit(L));
    if (gradient)
        grads_finish(L, last);
}

static void mlp_backward(struct lowering *L, int l, int c)
{
    const struct model_layer *layer = &L->m->layers[l];
    struct value *gate = &L->gate[l], *up = &L->up[l], *xmid = &L->xmid[l];
    enum dtype T = L->s.dtype;
    int gated = layer->gate.weight >= 0;
    int64_t r0 = xmid->tiles[c].row0, r1 = xmid->tiles[c].row1;
    value_get(L, &L->dx, c);
    value_get(L, xmid, c);
    if (gated)
        value_get(L, gate, c);
    value_get(L, up, c);
    lower_activation(L, l, c);
    lower_linear_dw(L, &layer->down, 0, layer->down.in, &L->dx, T, &L->act, T, r0, r1);
    lower_bias_grad(L, &layer->down, &L->dx, T, r0, r1);
    value_drop(L, &L->act, c);
    value_new(L, &L->dact, c);
    lower_linear_dx(L, &layer->down, 0, layer->down.in, &L->dact, r0, r1, T, &L->dx, T, 0);
    value_new(L, &L->dup, c);
    if (gated)
        value_new(L, &L->dgate, c);
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU_GRAD : OP_GELU_GRAD, LANE_COMPUTE);
    a->act.rows = r1 - r0;
    a->act.dim = L->m->config.ffn;
    a->act.dtype = (int32_t)T;
    a->act.kind = gated ? 0 : (int32_t)L->m->config.gelu;
    if (gated) {
        arg_write(L, 0, &L->dgate, r0, r1, DEV);
        arg_write(L, 1, &L->dup, r0, r1, DEV);
        arg_read(L, 2, gate, r0, r1, DEV);
        arg_read(L, 3, up, r0, r1, DEV);
        arg_read(L, 4, &L->dact, r0, r1, DEV);
    } else {
        arg_write(L, 0, &L->dup, r0, r1, DEV);
        arg_read(L, 1, up, r0, r1, DEV);
        arg_read(L, 2, &L->dact, r0, r1, DEV);
    }
    emit_done(L, 0);
    value_drop(L, &L->dact, c);
    if (!value_on_device(&L->n2, c))
        lower_norm_forward(L, &layer->norm2, &L->n2, xmid, c);
    value_new(L, &L->acc, c);
    if (gated) {
        lower_linear_dw(L, &layer->gate, 0, layer->gate.in, &L->dgate, T, &L->n2, T, r0, r1);
        lower_bias_grad(L, &layer->gate, &L->dgate, T, r0, r1);
        lower_linear_dx(L, &layer->gate, 0, layer->gate.in, &L->acc, r0, r1, F32, &L->dgate, T, 0);
        value_drop(L, &L->dgate, c);
    }
    lower_linear_dw(L, &layer->up, 0, layer->up.in, &L->dup, T, &L->n2, T, r0, r1);
    lower_bias_grad(L, &layer->up, &L->dup, T, r0, r1);
    lower_linear_dx(L, &layer->up, 0, layer->up.in, &L->acc, r0, r1, F32, &L->dup, T, gated);
    value_drop(L, &L->dup, c);
    lower_norm_backward(L, &layer->norm2, xmid, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_mlp(L, l, c);
}

static void attention_backward(struct lowering *L, int l, int t)
{
    const struct model_layer *layer = &L->m->layers[l];
    int kt = t / L->q_per_kv, first = t % L->q_per_kv == 0, final = t % L->q_per_kv == L->q_per_kv - 1;
    int64_t S = L->s.seq_len, width = L->s.head_tile * L->m->config.head_dim;
    enum dtype T = L->s.dtype;
    struct value *q = q_of(L, l, t), *k = k_of(L, l, kt), *v = v_of(L, l, kt), *o = o_of(L, l, t), *lse = lse_of(L, l, t);
    struct value *d_o = &L->d_o[t], *dq = &L->dq[t], *dk = &L->dk[kt], *dv = &L->dv[kt];
    value_open_full(L, o);
    value_open_full(L, d_o);
    for (int c = 0; c < L->n_chunks; c++) {
        int64_t r0 = o->tiles[c].row0, r1 = o->tiles[c].row1;
        value_get(L, o, c);
        value_get(L, &L->dx, c);
        value_new(L, d_o, c);
        lower_linear_dx(L, &layer->o, t * width, width, d_o, r0, r1, T, &L->dx, T, 0);
        lower_linear_dw(L, &layer->o, t * width, width, &L->dx, T, o, T, r0, r1);
        if (t == 0)
            lower_bias_grad(L, &layer->o, &L->dx, T, r0, r1);
        value_drop(L, &L->dx, c);
    }
    gather_qkv(L, l, t);
    value_get(L, lse, 0);
    value_reset_full(dq);
    value_open_full(L, dq);
    if (first) {
        value_reset_full(dk);
        value_reset_full(dv);
    }
    value_open_full(L, dk);
    value_open_full(L, dv);
    for (int c = 0; c < L->n_chunks; c++) {
        value_new(L, dq, c);
        if (first) {
            value_new(L, dk, c);
            value_new(L, dv, c);
        }
    }
    struct op_attrs *a = emit(L, OP_ATTN_BWD, LANE_COMPUTE);
    attention_attrs(L, a);
    a->attn.accumulate = !first;
    arg_write(L, 0, dq, 0, S, DEV);
    (first ? arg_write : arg_update)(L, 1, dk, 0, S, DEV);
    (first ? arg_write : arg_update)(L, 2, dv, 0, S, DEV);
    arg_read(L, 3, q, 0, S, DEV);
    arg_read(L, 4, k, 0, S, DEV);
    arg_read(L, 5, v, 0, S, DEV);
    arg_read(L, 6, o, 0, S, DEV);
    arg_read(L, 7, lse, 0, lse->rows, DEV);
    arg_read(L, 8, d_o, 0, S, DEV);
    arg_read(L, 9, &L->lo, 0, S, DEV);
    arg_read(L, 10, &L->hi, 0, S, DEV);
    emit_done(L, planned_pairs(L));
    value_close_full(L, q);
    value_close_full(L, o);
    value_close_full(L, d_o);
    value_drop(L, lse, 0);
    lower_rope(L, dq, 0, S, L->s.head_tile, F32, 1);
    for (int c = 0; c < L->n_chunks; c++)
        value_put(L, dq, c);
    value_close_full(L, dq);
    if (final) {
        value_close_full(L, k);
        value_close_full(L, v);
        lower_rope(L, dk, 0, S, L->kv_heads_tile, F32, 1);
        for (int c = 0; c < L->n_chunks; c++) {
            value_put(L, dk, c);
            value_put(L, dv, c);
        }
        value_close_full(L, dk);
        value_close_full(L, dv);
    }
}

static void projection_backward(struct lowering *L, const struct model_linear *w, struct value *dy, int c, int accumulate)
{
    int64_t r0 = dy->tiles[c].row0, r1 = dy->tiles[c].row1;
    value_get(L, dy, c);
    lower_linear_dw(L, w, 0, w->in, dy, F32, &L->n1, L->s.dtype, r0, r1);
    lower_bias_grad(L, w, dy, F32, r0, r1);
    lower_linear_dx(L, w, 0, w->in, &L->acc, r0, r1, F32, dy, F32, accumulate);
    value_drop(L, dy, c);
}

static void qkv_backward(struct lowering *L, int l, int c)
{
    const struct model_layer *layer = &L->m->layers[l];
    value_get(L, &L->x[l], c);
    lower_norm_forward(L, &layer->norm1, &L->n1, &L->x[l], c);
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++) {
        struct model_linear w = q_slice(L, l, t);
        projection_backward(L, &w, &L->dq[t], c, t > 0);
    }
    for (int kt = 0; kt < L->n_tiles_kv; kt++) {
        struct model_linear k = kv_slice(L, &layer->k, kt), v = kv_slice(L, &layer->v, kt);
        projection_backward(L, &k, &L->dk[kt], c, 1);
        projection_backward(L, &v, &L->dv[kt], c, 1);
    }
    value_drop(L, &L->n1, c);
    value_get(L, &L->dx, c);
    lower_norm_backward(L, &layer->norm1, &L->x[l], &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    value_drop(L, &L->acc, c);
    value_drop(L, &L->x[l], c);
}

static void embed_grad(struct lowering *L, int param, struct value *index, int64_t vocab, int c)
{
    int64_t r0 = L->dx.tiles[c].row0, r1 = L->dx.tiles[c].row1;
    if (!trained(L, param))
        return;
    struct op_attrs *a = emit(L, OP_EMBED_GRAD, LANE_COMPUTE);
    a->embed.rows = r1 - r0;
    a->embed.dim = L->m->config.dim;
    a->embed.vocab = vocab;
    a->embed.dtype = (int32_t)L->s.dtype;
    a->embed.accumulate = arg_grad(L, 0, param, 0, param_of(L, param)->elements);
    arg_read(L, 1, &L->dx, r0, r1, DEV);
    arg_read(L, 2, index, r0, r1, DEV);
    emit_done(L, 0);
}

void lower_backward(struct lowering *L)
{
    int lowest = L->m->n_units;
    for (int u = L->m->n_units - 1; u >= 0; u--)
        if (L->m->units[u].trained_elements > 0)
            lowest = u;
    for (int l = (int)L->m->config.layers - 1; l >= 0 && l + 1 >= lowest; l--) {
        L->phase = 'b';
        L->layer = l + 1;
        unit_fetch(L, l + 1);
        grads_begin(L, l + 1);
        for (int c = 0; c < L->n_chunks; c++)
            mlp_backward(L, l, c);
        for (int t = 0; t < L->n_tiles_q; t++)
            attention_backward(L, l, t);
        for (int c = 0; c < L->n_chunks; c++)
            qkv_backward(L, l, c);
        unit_drop(L, l + 1);
        grads_finish(L, l + 1);
    }
    if (lowest == 0) {
        L->layer = 0;
        if (head_unit(L) != 0)
            grads_begin(L, 0);
        for (int c = 0; c < L->n_chunks; c++) {
            value_get(L, &L->dx, c);
            embed_grad(L, L->m->embed, &L->tokens, L->m->config.vocab, c);
            if (L->m->pos_embed >= 0)
                embed_grad(L, L->m->pos_embed, &L->positions, L->m->config.max_positions, c);
            value_drop(L, &L->dx, c);
        }
        grads_finish(L, 0);
    }
}
