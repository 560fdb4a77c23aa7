#include "plan/lower/blocks/ring_parts.h"

#include "plan/lower/blocks/attend.h"
#include "plan/lower/emit.h"

#define DEV TIER_DEVICE

struct ring_rows ring_all(struct value *v)
{
    return (struct ring_rows){v, 0, v->rows};
}

void ring_exchange(struct lowering *L, struct ring_rows from, struct ring_rows to, int distance, int send_if, int recv_if,
                   int depth)
{
    value_new(L, to.value, value_tile_at(to.value, to.row));
    struct op_attrs *a = emit(L, OP_EXCHANGE, LANE_RING);
    L->p->instrs[L->p->n_instrs - 1].depth = (uint8_t)depth;
    a->comm.element = 4;
    a->comm.n = a->comm.share = from.rows * from.value->row_bytes / 4;
    a->comm.distance = distance;
    a->comm.send_if = send_if;
    a->comm.recv_if = recv_if;
    arg_read(L, 0, from.value, from.row, from.row + from.rows, DEV);
    arg_write(L, 1, to.value, to.row, to.row + to.rows, DEV);
    emit_done(L, 0);
}

void ring_add(struct lowering *L, struct ring_rows sum, struct ring_rows part, int predicate)
{
    struct op_attrs *a = emit(L, OP_ACCUM, LANE_COMPUTE);
    a->vec.n = sum.rows * sum.value->row_bytes / 4;
    under_predicate(L, predicate);
    arg_update(L, 0, sum.value, sum.row, sum.row + sum.rows, DEV);
    arg_read(L, 1, part.value, part.row, part.row + part.rows, DEV);
    emit_done(L, 0);
    value_drop(L, part.value, value_tile_at(part.value, part.row));
}
