#include "plan/lower/token_rows.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

int64_t token_rows_of_head(const struct lowering *L)
{
    return param_of(L, L->m->head_rows)->shape[0];
}

/* Returns the elements from row to row of the rows' logits. */
static int64_t row_ld(const struct lowering *L)
{
    return lower_rounds_dlogits(L) ? round_up(token_rows_of_head(L), 8) : token_rows_of_head(L);
}

void token_rows_values(struct lowering *L)
{
    if (L->m->head_rows < 0)
        return;
    value_create(L, &L->row_logits, "row_logits", CLASS_WORK, L->stream_rows, row_ld(L) * 4, L->s.key.loss_tile, RES_NONE);
    if (lower_rounds_dlogits(L))
        value_create(L, &L->row_dlogits, "row_dlogits", CLASS_WORK, L->stream_rows, row_ld(L) * 2, L->s.key.loss_tile, RES_NONE);
}

static struct model_linear rows_map(const struct lowering *L)
{
    const struct model_linear *head = &L->m->head;
    return (struct model_linear){.weight = L->m->head_rows,
                                 .bias = -1,
                                 .transposed = 1,
                                 .in = head->in,
                                 .out = token_rows_of_head(L),
                                 .ld = head->in,
                                 .factor = head->factor};
}

/* Returns the rows' logits, or their gradient, of the rows of `logits`. */
static struct linear_side side_of(struct lowering *L, const struct linear_side *logits)
{
    return (struct linear_side){logits->type == BF16 ? &L->row_dlogits : &L->row_logits, logits->row, logits->type, row_ld(L)};
}

static void emit_columns(struct lowering *L, enum op_kind op, const struct linear_call *call, const struct linear_side *rows)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    const int64_t r0 = call->y.row, r1 = r0 + call->rows;
    const int taken = op == OP_TAKE_COLUMNS;
    a->picked.rows = call->rows;
    a->picked.n = token_rows_of_head(L);
    a->picked.y_ld = call->y.ld;
    a->picked.x_ld = rows->ld;
    a->picked.dtype = (int32_t)call->y.type;
    if (taken)
        arg_write(L, 0, rows->value, r0, r1, DEV);
    else
        arg_read(L, 1, rows->value, r0, r1, DEV);
    arg_update(L, taken, call->y.value, r0, r1, DEV);
    arg_read(L, 2, &L->columns, 0, a->picked.n, DEV);
    emit_done(L, 0);
}

void token_rows_put(struct lowering *L, const struct linear_call *call)
{
    if (L->m->head_rows < 0)
        return;
    const struct model_linear map = rows_map(L);
    const struct linear_side rows = side_of(L, &call->y);
    const int tile = value_tile_at(rows.value, rows.row);
    value_new(L, rows.value, tile);
    linear_product(L, &(struct linear_call){&map, .rows = call->rows, .y = rows, .x = call->x});
    emit_columns(L, OP_PUT_COLUMNS, call, &rows);
    value_drop(L, rows.value, tile);
}

void token_rows_take(struct lowering *L, const struct linear_call *call)
{
    if (L->m->head_rows < 0)
        return;
    const struct linear_side rows = side_of(L, &call->y);
    value_new(L, rows.value, value_tile_at(rows.value, rows.row));
    emit_columns(L, OP_TAKE_COLUMNS, call, &rows);
}

void token_rows_gradient(struct lowering *L, const struct linear_call *call, const struct linear_side *dn)
{
    if (L->m->head_rows < 0)
        return;
    const struct model_linear map = rows_map(L);
    const struct linear_side rows = side_of(L, &call->y);
    linear_product_dx(L, &(struct linear_call){&map, .rows = call->rows, .y = rows, .x = *dn, .accumulate = 1});
    linear_product_dw(L, &(struct linear_call){&map, .rows = call->rows, .y = rows, .x = call->x});
    value_drop(L, rows.value, value_tile_at(rows.value, rows.row));
}
