#include "plan/lower/stack.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/slots.h"

#define DEV TIER_DEVICE

static int64_t elements_of_expert(const struct model_param *p)
{
    return model_param_stored(p) / p->experts;
}

int64_t stack_dequantised(const struct model_param *p)
{
    /* An eighth of the experts adds little to what a layer needs anyway; some 64 Mi elements fill a GPU with any number of rows. */
    enum { PARTS = 8, MOST = 64 << 20 };
    const int64_t each = elements_of_expert(p);
    return each * max_i64(1, min_i64(p->experts / PARTS, MOST / each));
}

struct stack_part stack_next(const struct lowering *L, int param, const struct stack_part *part)
{
    const struct model_param *p = param_of(L, param);
    const int64_t first = part->first + part->count, experts = slots_experts(L, p->unit, p->experts),
                  most = p->packed_bytes > 0 ? L->units[p->unit].dequantised.rows / elements_of_expert(p) : experts;
    return (struct stack_part){first, min_i64(most, experts - first)};
}

struct stack_part stack_first(const struct lowering *L, int param)
{
    return stack_next(L, param, &(struct stack_part){0, 0});
}

/* Appends bytes [first, first + n) of a quantised stack, or of its slots if these serve. */
static void arg_packed(struct lowering *L, int arg, int param, int64_t first, int64_t n)
{
    const struct model_param *p = param_of(L, param);
    if (slots_serve(L, p->unit))
        arg_slots(L, arg, param, first, n);
    else
        arg_read(L, arg, &L->units[p->unit].packed, p->packed_offset + first, p->packed_offset + first + n, DEV);
}

void stack_prepare(struct lowering *L, int param, const struct stack_part *part)
{
    const struct model_param *p = param_of(L, param);
    if (p->packed_bytes == 0)
        return;
    struct unit_values *u = &L->units[p->unit];
    const struct quantised q = model_quantised(&L->m->config, p);
    const int64_t n = q.rows * q.columns, stride = quantised_bytes(&q), per = model_param_matrices(p) / p->experts,
                  matrices = per * part->count, scales = per * part->first * stride, codes = scales + quantised_scale_bytes(&q),
                  last = (matrices - 1) * stride;
    u->dequantised.tiles[0].place[DEV] =
        (struct place){buffer_new(L, DEV, matrices * n * u->dequantised.row_bytes, CLASS_WORK), 0};
    struct op_attrs *a = emit(L, OP_DEQUANTISE, LANE_COMPUTE);
    a->dequantise.rows = matrices;
    a->dequantise.cols = a->dequantise.ld = a->dequantise.n = n;
    a->dequantise.columns = q.form == QUANTISED_INT8 ? q.columns : 0;
    a->dequantise.stride = stride;
    a->dequantise.y_type = (int32_t)L->s.key.dtype;
    a->dequantise.form = (int32_t)q.form;
    arg_write(L, 0, &u->dequantised, 0, matrices * n, DEV);
    arg_packed(L, 1, param, codes, last + ceil_div(n, quantised_per_byte(q.form)));
    arg_packed(L, 2, param, scales, codes + last - scales);
    emit_done(L, 0);
}

void arg_stack(struct lowering *L, struct op_attrs *a, int arg, const struct model_linear *w, const struct stack_part *part)
{
    const struct model_param *p = param_of(L, w->weight);
    const int64_t each = elements_of_expert(p);
    a->experts.first = (int32_t)part->first;
    a->experts.count = (int32_t)part->count;
    if (p->packed_bytes == 0) {
        arg_experts(L, arg, w->weight, 0, slots_experts(L, p->unit, p->experts));
        return;
    }
    a->experts.transposed = w->transposed ^ (L->m->config.base == BASE_MXFP4); /* files have those matrices the other way round */
    arg_read(L, arg, &L->units[p->unit].dequantised, 0, part->count * each, DEV);
}
