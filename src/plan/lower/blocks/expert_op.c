/* Instructions that ranks with all experts and ranks with a share of them both need. */
#include "plan/lower/blocks/expert_op.h"

#include "plan/lower/activation.h"
#include "plan/lower/blocks/experts.h"
#include "plan/lower/blocks/narrow.h"
#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/slots.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

struct op_attrs *experts_emit(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                              int64_t rows)
{
    const struct experts_block *e = &b->weights->experts;
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->experts.rows = rows * e->used;
    a->experts.in = w->in;
    a->experts.out = w->out;
    a->experts.experts = a->experts.count = slots_experts(L, param_of(L, w->weight)->unit, e->experts);
    a->experts.per = (int32_t)e->used;
    a->experts.transposed = w->transposed;
    a->experts.x_type = a->experts.w_type = a->experts.y_type = (int32_t)L->s.key.dtype;
    return a;
}

int64_t experts_room(const struct lowering *L)
{
    const struct model_config *c = &L->m->config;
    return L->ep > 1 ? L->ep * min_i64(c->experts_used, c->experts / L->ep) : c->experts_used;
}

int32_t experts_padding(const struct lowering *L)
{
    return L->ep > 1 ? (int32_t)(100 * experts_room(L) / L->m->config.experts_used) : 0;
}

struct op_attrs *experts_emit_here(struct lowering *L, const struct block *b, enum op_kind op, const struct model_linear *w,
                                   int64_t rows)
{
    struct op_attrs *a = experts_emit(L, b, op, w, rows);
    if (L->ep == 1)
        return a;
    a->experts.rows = rows * experts_room(L);
    a->experts.experts = a->experts.count = (int32_t)(L->m->config.experts / L->ep);
    a->experts.per = 1;
    a->experts.padded = experts_padding(L);
    return a;
}

struct expert_rows experts_rows_of(const struct block *b, int c)
{
    const struct tile *t = &b->in->tiles[c];
    return (struct expert_rows){t->row0, t->row1, t->row1 - t->row0};
}

void experts_read(struct lowering *L, int arg, struct value *v, const struct expert_rows *r)
{
    arg_read(L, arg, v, r->first, r->end, DEV);
}

void experts_write(struct lowering *L, int arg, struct value *v, const struct expert_rows *r, int c)
{
    value_new(L, v, c);
    arg_write(L, arg, v, r->first, r->end, DEV);
}

void experts_combine(struct lowering *L, const struct block *b, int c, int accumulate, int bias)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const struct experts_block *e = experts_weights(b);
    const struct expert_rows r = experts_rows_of(b, c);
    const int unit = param_of(L, e->down.weight)->unit;
    struct value *sum = narrow_is(b) ? &W->narrow.sum : b->acc;
    if (!accumulate)
        value_new(L, sum, c);
    struct op_attrs *a = emit(L, OP_COMBINE, LANE_COMPUTE);
    a->combine.rows = r.n;
    a->combine.dim = model_expert_dim(&L->m->config);
    a->combine.k = (int32_t)e->used;
    a->combine.experts = bias ? slots_experts(L, unit, e->experts) : (int32_t)e->experts;
    a->combine.y_type = a->combine.dtype = (int32_t)L->s.key.dtype;
    a->combine.accumulate = accumulate;
    (accumulate ? arg_update : arg_write)(L, 0, sum, r.first, r.end, DEV);
    experts_read(L, 1, &W->y, &r);
    experts_read(L, 2, &W->place, &r);
    if (bias) {
        experts_read(L, 3, &x->p, &r);
        arg_experts(L, 4, e->down.bias, 0, a->combine.experts);
        experts_read(L, 5, slots_serve(L, unit) ? &W->slots : &x->ids, &r);
    }
    emit_done(L, 0);
    value_drop(L, &W->y, c);
}

struct op_attrs *experts_gated(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    const struct experts_block *e = experts_weights(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->gated.rows = rows;
    a->gated.dim = e->ffn;
    a->gated.width = model_expert_dim(&L->m->config);
    a->gated.k = (int32_t)e->used;
    a->gated.experts = (int32_t)e->experts;
    a->gated.dtype = (int32_t)L->s.key.dtype;
    a->gated.kind = (int32_t)e->gate;
    a->gated.interleaved = e->alternate;
    if (e->gate == GATE_CLAMPED) {
        a->gated.limit = (float)L->m->config.gate_limit;
        a->gated.alpha = (float)L->m->config.gate_alpha;
    }
    return a;
}

void experts_value(struct lowering *L, struct value *v, const char *name, int64_t columns, enum dtype type)
{
    activation_of_work(L, RES_NONE, -1, &(struct activation){v, name, columns, type, STREAM});
}
