/* Products of experts: all pairs of a rank's tokens or, if ranks share experts out, the pairs that arrived from all of them. */
#include "plan/lower/blocks/experts.h"

#include "plan/lower/blocks/expert_op.h"
#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/slots.h"
#include "plan/lower/stack.h"
#include "plan/lower/value.h"

#define DEV TIER_DEVICE

struct value *experts_order(const struct lowering *L)
{
    struct experts_work *W = experts_work_of(L);
    return L->ep > 1 ? &W->sent.order : &W->order;
}

struct value *experts_offsets(const struct lowering *L)
{
    struct experts_work *W = experts_work_of(L);
    return L->ep > 1 ? &W->sent.offsets : &W->offsets;
}

/* Returns the weights of the pairs whose experts this rank has, by pair. */
static struct value *weights_here(const struct lowering *L, const struct block *b)
{
    struct experts_layer *x = b->values;
    return L->ep > 1 ? &experts_work_of(L)->sent.p : &x->p;
}

/* Multiplies by the matrices of a part of the experts. The first part's product begins y, and the others write further rows. */
static void multiply_part(struct lowering *L, const struct block *b, const struct experts_product *p, int c,
                          const struct stack_part *part)
{
    const struct expert_rows r = experts_rows_of(b, c);
    stack_prepare(L, p->w->weight, part);
    struct op_attrs *a = experts_emit_here(L, b, OP_EXPERTS, p->w, r.n);
    a->experts.result = part->first > 0 ? GEMM_KEEPS : GEMM_WRITES;
    if (part->first > 0)
        arg_update(L, 0, p->y, r.first, r.end, DEV);
    else
        experts_write(L, 0, p->y, &r, c);
    experts_read(L, 1, p->x, &r);
    arg_stack(L, a, 2, p->w, part);
    arg_read(L, 3, experts_offsets(L), c, c + 1, DEV);
    if (p->gathered)
        experts_read(L, 4, experts_order(L), &r);
    if (p->w->bias >= 0)
        arg_experts(L, 5, p->w->bias, part->first, part->count);
    emit_done(L, 0);
}

void experts_multiply(struct lowering *L, const struct block *b, const struct experts_product *p, int c)
{
    struct stack_part part = stack_first(L, p->w->weight);
    for (; part.count > 0; part = stack_next(L, p->w->weight, &part))
        multiply_part(L, b, p, c, &part);
}

void experts_multiply_without_bias(struct lowering *L, const struct block *b, const struct experts_product *p, int c)
{
    struct model_linear w = *p->w;
    w.bias = -1;
    experts_multiply(L, b, &(struct experts_product){&w, p->y, p->x, p->gathered}, c);
}

void experts_multiply_back(struct lowering *L, const struct block *b, const struct experts_product *p, int c)
{
    struct model_linear w = *p->w;
    w.in = p->w->out;
    w.out = p->w->in;
    w.transposed = !p->w->transposed;
    w.bias = -1;
    experts_multiply(L, b, &(struct experts_product){&w, p->y, p->x, p->gathered}, c);
}

void experts_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy,
                      struct value *input, enum experts_gather gathers, int c)
{
    const struct expert_rows r = experts_rows_of(b, c);
    const int of_bias = trained(L, w->bias);
    if (!trained(L, w->weight) && !of_bias)
        return;
    struct op_attrs *a = experts_emit_here(L, b, OP_EXPERTS_GRAD, w, r.n);
    a->experts.gathers = (int32_t)gathers;
    int adds = 0;
    if (trained(L, w->weight))
        adds = arg_grad(L, 0, w->weight, 0, param_of(L, w->weight)->elements);
    experts_read(L, 1, dy, &r);
    experts_read(L, 2, input, &r);
    arg_read(L, 3, experts_offsets(L), c, c + 1, DEV);
    experts_read(L, 4, experts_order(L), &r);
    if (of_bias)
        adds = arg_grad(L, 5, w->bias, 0, param_of(L, w->bias)->elements);
    if (of_bias && gathers == GATHERS_DY)
        experts_read(L, 6, weights_here(L, b), &r);
    a->experts.result = adds ? GEMM_ADDS : GEMM_WRITES;
    emit_done(L, 0);
}

struct stack_adapter experts_adapter(const struct lowering *L, const struct block *b, const struct model_linear *w, int c)
{
    struct experts_work *W = experts_work_of(L);
    return (struct stack_adapter){b, w, &W->adapter, experts_order(L), experts_offsets(L), c};
}
