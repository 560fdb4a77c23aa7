/* The layers of a model as instructions, forward and backward, tile by tile. */
#include "plan/lower/pieces.h"

#define DEV TIER_DEVICE

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

/* q, k or v of one chunk for one member: norm, projection, rope. The normalised chunk is shared by what a visit computes. */
static void produce_projection(struct lowering *L, struct value *v, int i)
{
    const struct model_layer *layer = &L->m->layers[v->layer];
    int m = i / L->n_chunks, c = i % L->n_chunks;
    if (v->kind != VALUE_Q && kv_replica(L, m) && value_on_device(v, i - L->n_chunks)) {
        produce_replica(L, v, i);
        return;
    }
    struct model_linear w = v->kind == VALUE_Q ? q_slice(L, v->layer, m, v->index)
                                               : kv_slice(L, v->kind == VALUE_K ? &layer->k : &layer->v, m, v->index);
    int64_t r0 = v->tiles[i].row0, r1 = v->tiles[i].row1, x0 = L->x[v->layer].tiles[c].row0;
    if (!value_on_device(&L->n1, c)) {
        value_get(L, &L->x[v->layer], c);
        lower_norm_forward(L, &layer->norm1, &L->n1, &L->x[v->layer], c);
    }
    value_new(L, v, i);
    lower_linear(L, &w, 0, w.in, v, r0, r1, L->s.dtype, &L->n1, x0, L->s.dtype, 0);
    lower_bias(L, &w, v, r0, r1);
    if (v->kind != VALUE_V)
        lower_rope(L, v, r0, r1, x0, (int)(w.out / L->m->config.head_dim), L->s.dtype, 0);
}

static void produce_xmid(struct lowering *L, struct value *v, int c)
{
    const struct model_layer *layer = &L->m->layers[v->layer];
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1, d = L->m->config.head_dim, width = L->s.head_tile * d;
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++)
        for (int m = 0; m < L->s.ulysses; m++) {
            struct value *o = &L->o[v->layer * L->n_tiles_q + t];
            int i = m * L->n_chunks + c;
            value_get(L, o, i);
            lower_linear(L, &layer->o, routed_head(L, m, t) * d, width, &L->acc, r0, r1, F32, o, o->tiles[i].row0, L->s.dtype,
                         t + m > 0);
            value_drop(L, o, i);
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
    lower_linear(L, w, 0, w->in, v, r0, r1, L->s.dtype, &L->n2, r0, L->s.dtype, 0);
    lower_bias(L, w, v, r0, r1);
}

static void drop_mlp(struct lowering *L, int l, int c)
{
    struct value *all[] = {&L->x[l], &L->xmid[l], &L->n2, &L->gate[l], &L->up[l], &L->act, &L->acc};
    for (int i = 0; i < 7; i++)
        if (all[i]->tiles)
            value_drop(L, all[i], c);
}

/* A layer's output, the next one's input: the MLP added to x_mid. */
static void produce_output(struct lowering *L, struct value *v, int c)
{
    const int l = v->layer - 1;
    const struct model_layer *layer = &L->m->layers[l];
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    value_get(L, &L->xmid[l], c);
    if (layer->gate.weight >= 0)
        value_get(L, &L->gate[l], c);
    value_get(L, &L->up[l], c);
    value_drop(L, &L->n2, c);
    lower_activation(L, l, c);
    value_new(L, &L->acc, c);
    lower_linear(L, &layer->down, 0, layer->down.in, &L->acc, r0, r1, F32, &L->act, r0, L->s.dtype, 0);
    lower_add(L, v, &L->xmid[l], &L->acc, &layer->down, c);
    drop_mlp(L, l, c);
}

void lower_value_produce(struct lowering *L, struct value *v, int tile)
{
    switch (v->kind) {
    case VALUE_X:
        produce_output(L, v, tile);
        return;
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

static void mlp_forward(struct lowering *L, int l, int c)
{
    value_get(L, &L->x[l + 1], c);
    if (!lower_keeps_input(L, l))
        value_forget(&L->x[l], c);
    if (l + 1 < (int)L->m->config.layers) /* the loss follows the last layer chunk by chunk */
        value_pause(L, &L->x[l + 1], c);
}

/* Rows in use of a table of embeddings. */
static int64_t table_rows(const struct lowering *L, int param)
{
    return param_of(L, param)->elements / L->m->config.dim;
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
    a->embed.max_pos = L->m->pos_embed >= 0 ? table_rows(L, L->m->pos_embed) : 0;
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
    value_pause(L, x, c);
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
        lower_linear(L, head, 0, head->in, &L->logits, a0, a1, F32, &L->final_n, a0, L->s.dtype, 0);
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
            lower_linear_dx(L, head, 0, head->in, &L->dn, a0, a1, F32, &L->logits, a0, F32, 0);
            lower_linear_dw(L, head, 0, head->in, &L->logits, a0, a1, F32, &L->final_n, a0, L->s.dtype);
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
        lower_attention_forward(L, l);
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
        value_leave(L, &L->x[l]);
        for (int t = 0; t < L->n_tiles_q; t++)
            value_leave(L, &L->o[l * L->n_tiles_q + t]);
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
    value_new(L, &L->dact, c);
    lower_linear_dx(L, &layer->down, 0, layer->down.in, &L->dact, r0, r1, T, &L->dx, r0, T, 0);
    lower_activation_backward(L, l, c);
    lower_linear_dw(L, &layer->down, 0, layer->down.in, &L->dx, r0, r1, T, &L->dact, r0, T);
    lower_bias_grad(L, &layer->down, &L->dx, T, r0, r1);
    value_drop(L, &L->dact, c);
    if (!value_on_device(&L->n2, c))
        lower_norm_forward(L, &layer->norm2, &L->n2, xmid, c);
    value_new(L, &L->acc, c);
    if (gated) {
        lower_linear_dw(L, &layer->gate, 0, layer->gate.in, gate, r0, r1, T, &L->n2, r0, T);
        lower_bias_grad(L, &layer->gate, gate, T, r0, r1);
        lower_linear_dx(L, &layer->gate, 0, layer->gate.in, &L->acc, r0, r1, F32, gate, r0, T, 0);
    }
    lower_linear_dw(L, &layer->up, 0, layer->up.in, up, r0, r1, T, &L->n2, r0, T);
    lower_bias_grad(L, &layer->up, up, T, r0, r1);
    lower_linear_dx(L, &layer->up, 0, layer->up.in, &L->acc, r0, r1, F32, up, r0, T, gated);
    lower_norm_backward(L, &layer->norm2, xmid, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_mlp(L, l, c);
}

/* What one member's heads of a tile contribute to chunk c. rotated_heads: dy is of a rotated value; 0: it is not. */
static void projection_backward(struct lowering *L, const struct model_linear *w, struct value *dy, enum dtype dy_type, int i,
                                int rotated_heads, int accumulate)
{
    int64_t r0 = dy->tiles[i].row0, r1 = dy->tiles[i].row1;
    struct tile *chunk = &L->n1.tiles[i % L->n_chunks];
    value_get(L, dy, i);
    if (rotated_heads)
        lower_rope(L, dy, r0, r1, chunk->row0, rotated_heads, dy_type, 1);
    lower_linear_dw(L, w, 0, w->in, dy, r0, r1, dy_type, &L->n1, chunk->row0, L->s.dtype);
    lower_bias_grad(L, w, dy, dy_type, r0, r1);
    lower_linear_dx(L, w, 0, w->in, &L->acc, chunk->row0, chunk->row1, F32, dy, r0, dy_type, accumulate);
    value_drop(L, dy, i);
}

/* The members that share member m's KV head (they follow it) have their gradients added to its own. */
static void add_replicas(struct lowering *L, struct value *dy, int m, int c)
{
    int first = m * L->n_chunks + c;
    struct tile *sum = &dy->tiles[first];
    for (int other = m + 1; other < L->s.ulysses && kv_replica(L, other); other++) {
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

static void qkv_backward(struct lowering *L, int l, int c)
{
    const struct model_layer *layer = &L->m->layers[l];
    value_get(L, &L->x[l], c);
    lower_norm_forward(L, &layer->norm1, &L->n1, &L->x[l], c);
    value_new(L, &L->acc, c);
    for (int t = 0; t < L->n_tiles_q; t++)
        for (int m = 0; m < L->s.ulysses; m++) {
            struct model_linear w = q_slice(L, l, m, t);
            projection_backward(L, &w, &L->dq[t], dq_type(L), m * L->n_chunks + c, L->s.head_tile, t + m > 0);
        }
    for (int kt = 0; kt < L->n_tiles_kv; kt++)
        for (int m = 0; m < L->s.ulysses; m++) {
            if (kv_replica(L, m))
                continue;
            struct model_linear k = kv_slice(L, &layer->k, m, kt), v = kv_slice(L, &layer->v, m, kt);
            add_replicas(L, &L->dk[kt], m, c);
            projection_backward(L, &k, &L->dk[kt], F32, m * L->n_chunks + c, L->kv_heads_tile, 1);
            add_replicas(L, &L->dv[kt], m, c);
            projection_backward(L, &v, &L->dv[kt], F32, m * L->n_chunks + c, 0, 1);
        }
    value_drop(L, &L->n1, c);
    value_get(L, &L->dx, c);
    lower_norm_backward(L, &layer->norm1, &L->x[l], &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    value_drop(L, &L->acc, c);
    value_drop(L, &L->x[l], c);
}

static void embed_grad(struct lowering *L, int param, struct value *index, int c)
{
    int64_t r0 = L->dx.tiles[c].row0, r1 = L->dx.tiles[c].row1;
    if (!trained(L, param))
        return;
    struct op_attrs *a = emit(L, OP_EMBED_GRAD, LANE_COMPUTE);
    a->embed.rows = r1 - r0;
    a->embed.dim = L->m->config.dim;
    a->embed.vocab = table_rows(L, param);
    a->embed.dtype = (int32_t)L->s.dtype;
    a->embed.accumulate = arg_grad(L, 0, param, 0, param_of(L, param)->elements);
    arg_read(L, 1, &L->dx, r0, r1, DEV);
    arg_read(L, 2, index, r0, r1, DEV);
    emit_done(L, 0);
}

/* Layer inputs that were not kept, from the last one that was up to layer l's, layer by layer: each layer's parameters are
 * fetched once, and what is computed lives where kept inputs do until its layer has used it, or on the host if they are staged
 * there. */
static void restore_inputs(struct lowering *L, int l)
{
    int first = l;
    while (!lower_keeps_input(L, first))
        first--;
    for (int j = first; j < l; j++) {
        L->layer = j + 1;
        unit_fetch(L, j + 1);
        for (int c = 0; c < L->n_chunks; c++) {
            value_get(L, &L->x[j + 1], c);
            value_drop(L, &L->x[j + 1], c);
        }
        unit_drop(L, j + 1);
    }
}

void lower_backward(struct lowering *L)
{
    int lowest = L->m->n_units;
    for (int u = L->m->n_units - 1; u >= 0; u--)
        if (L->m->units[u].trained_elements > 0)
            lowest = u;
    for (int l = (int)L->m->config.layers - 1; l >= 0 && l + 1 >= lowest; l--) {
        L->phase = 'b';
        if (value_where(&L->x[l], 0) < 0)
            restore_inputs(L, l);
        L->layer = l + 1;
        unit_fetch(L, l + 1);
        grads_begin(L, l + 1);
        for (int c = 0; c < L->n_chunks; c++)
            mlp_backward(L, l, c);
        lower_attention_backward(L, l);
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
            embed_grad(L, L->m->embed, &L->tokens, c);
            if (L->m->pos_embed >= 0)
                embed_grad(L, L->m->pos_embed, &L->positions, c);
            value_drop(L, &L->dx, c);
        }
        grads_finish(L, 0);
    }
}
