#include "plan/lower/blocks/expert_op.h"

#include "plan/lower/emit.h"

struct op_attrs *experts_emit(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                              int64_t rows)
{
    const struct experts_block *e = &b->weights->experts;
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->experts.rows = rows * e->used;
    a->experts.in = w->in;
    a->experts.out = w->out;
    a->experts.experts = a->experts.count = (int32_t)e->experts;
    a->experts.per = (int32_t)e->used;
    a->experts.transposed = w->transposed;
    a->experts.x_type = a->experts.w_type = a->experts.y_type = (int32_t)L->s.key.dtype;
    return a;
}
