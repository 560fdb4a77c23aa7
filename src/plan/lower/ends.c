/* Both ends of a model, chunk by chunk: the embedding, and the final norm, head and loss. */
#include "plan/lower/ends.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/token_rows.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* Returns the rows in use of a table of embeddings. */
static int64_t table_rows(const struct lowering *L, int param)
{
    return param_of(L, param)->elements / L->m->config.dim;
}

/* Returns the factor of embeddings. Gemma rounds it to the storage type. */
static float embedding_scale(const struct lowering *L)
{
    float scale = (float)L->m->config.embedding_scale;
    return L->m->rounds_embedding_scale && L->s.key.dtype == BF16 ? bf16_to_float(bf16_from_float(scale)) : scale;
}

/* Looks up rows of a table for chunk c. over: 1: only where `index` has one, over what is there. */
static void look_up(struct lowering *L, int param, struct value *index, int c, int over)
{
    struct value *x = &L->x[0];
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    struct op_attrs *a = emit(L, OP_EMBED, LANE_COMPUTE);
    a->embed.rows = r1 - r0;
    a->embed.dim = L->m->config.dim;
    a->embed.vocab = param_of(L, param)->shape[0];
    a->embed.over = over;
    a->embed.max_pos = L->m->pos_embed >= 0 ? table_rows(L, L->m->pos_embed) : 0;
    a->embed.dtype = (int32_t)L->s.key.dtype;
    a->embed.scale = embedding_scale(L);
    (over ? arg_update : arg_write)(L, 0, x, r0, r1, DEV);
    arg_param(L, 1, param);
    arg_read(L, 2, index, r0, r1, DEV);
    if (L->m->pos_embed >= 0) {
        arg_param(L, 3, L->m->pos_embed);
        arg_read(L, 4, &L->positions, r0, r1, DEV);
    }
    emit_done(L, 0);
}

void lower_embed(struct lowering *L, int c)
{
    struct value *x = &L->x[0];
    value_new(L, x, c);
    look_up(L, L->m->embed, &L->tokens, c, 0);
    if (L->m->embed_rows >= 0)
        look_up(L, L->m->embed_rows, &L->slots, c, 1);
    adapter_embed(L, x, c, embedding_scale(L));
    value_put(L, x, c);
    value_pause(L, x, c);
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
    a->embed.dtype = (int32_t)L->s.key.dtype;
    a->embed.scale = embedding_scale(L);
    a->embed.accumulate = arg_grad(L, 0, param, 0, param_of(L, param)->elements);
    arg_read(L, 1, &L->dx, r0, r1, DEV);
    arg_read(L, 2, index, r0, r1, DEV);
    emit_done(L, 0);
}

void lower_embed_backward(struct lowering *L, int c)
{
    value_get(L, &L->dx, c);
    embed_grad(L, L->m->embed, &L->tokens, c);
    embed_grad(L, L->m->embed_rows, &L->slots, c);
    if (L->m->pos_embed >= 0)
        embed_grad(L, L->m->pos_embed, &L->positions, c);
    adapter_embed_backward(L, c, embedding_scale(L));
    value_drop(L, &L->dx, c);
}

int head_matrix_unit(const struct lowering *L)
{
    return param_of(L, L->m->head.weight)->unit;
}

/* Computes the gradient of one chunk's loss with respect to the stream, from the gradient of the final norm's output. */
static void stream_gradient(struct lowering *L, int c)
{
    struct value *x = &L->x[L->m->config.layers];
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
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

int64_t lower_logits_ld(const struct lowering *L)
{
    return lower_rounds_dlogits(L) ? round_up(L->m->config.vocab, 8) : L->m->config.vocab;
}

int lower_says_each(const struct lowering *L)
{
    if (L->pp > 1)
        return (L->duties & DUTY_EVALUATE) != 0;
    return L->s.evaluates && (L->duties & DUTY_FORWARD) && !(L->duties & DUTY_BACKWARD);
}

int lower_weighs(const struct lowering *L)
{
    if (L->pp > 1)
        return L->s.weighted && (L->duties & DUTY_HEAD) && !(L->duties & DUTY_EVALUATE);
    return L->s.weighted && (L->duties & DUTY_BACKWARD);
}

void loss_values(struct lowering *L)
{
    value_create(L, &L->dn, "dn", CLASS_WORK, L->stream_rows, L->m->config.dim * 4, L->s.key.loss_tile, RES_NONE);
    value_create(L, &L->logits, "logits", CLASS_WORK, L->stream_rows, lower_logits_ld(L) * 4, L->s.key.loss_tile, RES_NONE);
    if (lower_rounds_dlogits(L))
        value_create(L, &L->dlogits, "dlogits", CLASS_WORK, L->stream_rows, lower_logits_ld(L) * 2, L->s.key.loss_tile, RES_NONE);
    token_rows_values(L);
}

void lower_loss_chunk(struct lowering *L, int c, int gradient)
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
        const int rounds = gradient && lower_rounds_dlogits(L);
        struct linear_call call = {head, .rows = a1 - a0, .y = {&L->logits, a0, F32, lower_logits_ld(L)},
                                   .x = {&L->final_n, a0, L->s.key.dtype}};
        lower_linear(L, &call);
        token_rows_put(L, &call);
        lower_bias_of(L, head, &call.y, a1 - a0);
        value_new(L, &L->loss, i);
        struct op_attrs *a = emit(L, OP_LOSS, LANE_COMPUTE);
        a->loss.rows = a1 - a0;
        a->loss.vocab = vocab;
        a->loss.ld = lower_rounds_dlogits(L) ? lower_logits_ld(L) : 0;
        a->loss.gradient = gradient && !rounds;
        a->loss.gradient_bf16 = rounds;
        a->loss.scale = (float)L->m->config.logit_scale;
        a->loss.cap = (float)L->m->config.logit_cap;
        (a->loss.gradient ? arg_update : arg_read)(L, 0, &L->logits, a0, a1, DEV);
        arg_write(L, 1, &L->loss, i, i + 1, DEV);
        arg_read(L, 2, &L->targets, a0, a1, DEV);
        arg_read(L, 3, &L->record, 0, 1, DEV);
        if (lower_says_each(L)) {
            value_new(L, &L->each, i);
            arg_write(L, 4, &L->each, a0, a1, DEV);
        }
        if (rounds) {
            value_new(L, &L->dlogits, i);
            arg_write(L, 5, &L->dlogits, a0, a1, DEV);
        }
        if (lower_weighs(L))
            arg_read(L, 6, &L->weights, a0, a1, DEV);
        emit_done(L, 0);
        if (lower_says_each(L))
            value_put_home(L, &L->each, a0, a1, DEV);
        if (gradient) {
            L->dn.tiles[i].place[DEV] = (struct place){dn_buffer, (a0 - r0) * L->dn.row_bytes};
            if (rounds) {
                value_drop(L, &L->logits, i);
                call.y = (struct linear_side){&L->dlogits, a0, BF16, lower_logits_ld(L)};
            }
            const struct linear_side dn = {&L->dn, a0, F32};
            token_rows_take(L, &call);
            lower_linear_dx(L, &(struct linear_call){head, .rows = a1 - a0, .y = call.y, .x = dn});
            lower_linear_dw(L, &call);
            token_rows_gradient(L, &call, &dn);
            lower_bias_grad_of(L, head, &call.y, a1 - a0);
        }
        value_drop(L, rounds ? &L->dlogits : &L->logits, i);
    }
    if (gradient)
        stream_gradient(L, c);
    value_drop(L, &L->final_n, c);
    value_drop(L, x, c);
}

void lower_last_logits(struct lowering *L)
{
    struct value *x = &L->x[L->m->config.layers];
    value_get(L, x, 0);
    value_new(L, &L->last, 0);
    struct op_attrs *a =
        emit(L, OP_EMBED, LANE_COMPUTE); /* a lookup in the stream, as if it were a table of embeddings, copies one row */
    a->embed.rows = 1;
    a->embed.dim = L->m->config.dim;
    a->embed.vocab = L->s.rows;
    a->embed.dtype = (int32_t)L->s.key.dtype;
    arg_write(L, 0, &L->last, 0, 1, DEV);
    arg_read(L, 1, x, 0, L->s.rows, DEV);
    arg_read(L, 2, &L->last_row, 0, 1, DEV);
    emit_done(L, 0);
    value_drop(L, x, 0);
    lower_norm_forward(L, &L->m->final_norm, &L->last_n, &L->last, 0);
    value_drop(L, &L->last, 0);
    value_new(L, &L->logits, 0);
    const struct linear_side logits = {&L->logits, 0, F32, lower_logits_ld(L)};
    lower_linear(L, &(struct linear_call){&L->m->head, .rows = 1, .y = logits, .x = {&L->last_n, 0, L->s.key.dtype}});
    lower_bias_of(L, &L->m->head, &logits, 1);
    value_drop(L, &L->last_n, 0);
    value_put_home(L, &L->logits, 0, 1, DEV);
}
