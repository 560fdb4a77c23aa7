/* Gates and norms of a recurrence's outputs, in either order, and the map back. */
#include "plan/lower/blocks/recurrent.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"

#define DEV TIER_DEVICE

/* Tells whether gates come before norms; 0 without norms. */
static int gates_first(const struct recurrent_block *r)
{
    return r->heads_norm.kind != NORM_NONE && r->gates_first;
}

static int norms_first(const struct recurrent_block *r)
{
    return r->heads_norm.kind != NORM_NONE && !r->gates_first;
}

/* Returns the parts that are normalised by themselves: heads with common weights, or parts of the row with their own. */
static struct heads parts_of(const struct recurrent_block *r)
{
    return r->heads_norm.parts > 0 ? (struct heads){0, 0, 0} : (struct heads){0, r->heads, r->value_dim};
}

/* Returns the rows of chunk c. */
static struct tile rows_of(const struct block *b, int c)
{
    return ((struct recurrent_layer *)b->values)->z.tiles[c];
}

static struct op_attrs *emit_gate(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->act.rows = rows;
    a->act.dim = recurrent_values(recurrent_of(b));
    a->act.dtype = (int32_t)L->s.key.dtype;
    a->act.kind = (int32_t)recurrent_of(b)->gate;
    return a;
}

/* Returns the values that gates multiply. */
static struct value *gated_of(struct lowering *L, const struct block *b)
{
    struct recurrent_work *W = recurrent_work(L);
    return norms_first(recurrent_of(b)) ? &W->n : &W->o;
}

/* Computes y, the gated values of chunk c. */
static void gate(struct lowering *L, const struct block *b, int c)
{
    struct recurrent_layer *v = b->values;
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    value_new(L, &W->y, c);
    emit_gate(L, b, OP_SWIGLU, r1 - r0);
    arg_write(L, 0, &W->y, r0, r1, DEV);
    arg_read(L, 1, &v->z, r0, r1, DEV);
    arg_read(L, 2, gated_of(L, b), r0, r1, DEV);
    emit_done(L, 0);
}

/* Computes n, the norms of x, for chunk c. */
static void normalise(struct lowering *L, const struct block *b, struct value *x, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    value_new(L, &recurrent_work(L)->n, c);
    lower_head_norm_forward(L, &r->heads_norm, &recurrent_work(L)->n, r0, x, r0, r1 - r0, parts_of(r));
}

void recurrent_norm(struct lowering *L, const struct block *b, int c)
{
    if (norms_first(recurrent_of(b)))
        normalise(L, b, &recurrent_work(L)->o, c);
}

void recurrent_branch(struct lowering *L, const struct block *b, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    struct value *x = gates_first(r) ? &W->n : &W->y;
    gate(L, b, c);
    if (gates_first(r))
        normalise(L, b, &W->y, c);
    value_new(L, &L->acc, c);
    lower_linear(L, &(struct linear_call){&r->out, .rows = r1 - r0, .y = {&L->acc, r0, F32}, .x = {x, r0, L->s.key.dtype}});
    value_drop(L, &W->y, c);
    if (gates_first(r))
        value_drop(L, &W->n, c);
}

/* Replaces z and the gated values by their gradients, and dy, the gradient of their product, by the product. */
static void gate_backward(struct lowering *L, const struct block *b, struct value *dy, int c)
{
    struct recurrent_layer *v = b->values;
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    emit_gate(L, b, OP_SWIGLU_GRAD, r1 - r0);
    arg_update(L, 0, &v->z, r0, r1, DEV);
    arg_update(L, 1, gated_of(L, b), r0, r1, DEV);
    arg_update(L, 2, dy, r0, r1, DEV);
    emit_done(L, 0);
}

/* Computes dout, the gradient of x, from dn, the fp32 gradient of the norms of x. */
static void norm_backward(struct lowering *L, const struct block *b, struct value *x, struct value *dn, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    value_new(L, &W->dout, c);
    lower_head_norm_backward(L, &r->heads_norm, &W->dout, x, r0, dn, r0, r1 - r0, parts_of(r));
    value_drop(L, dn, c);
}

/* Computes the gradient of heads' outputs if gates come before norms. */
static struct value *gates_first_backward(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {&r->out, .rows = r1 - r0, .y = {df, r0, T}, .x = {&W->n, r0, T}};
    gate(L, b, c);
    normalise(L, b, &W->y, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, &r->out, df, T, r0, r1);
    value_drop(L, &W->n, c);
    value_new(L, &W->dn, c);
    call.x = (struct linear_side){&W->dn, r0, F32};
    lower_linear_dx(L, &call);
    norm_backward(L, b, &W->y, &W->dn, c);
    gate_backward(L, b, &W->dout, c);
    value_drop(L, &W->dout, c);
    value_drop(L, &W->y, c);
    return &W->o;
}

struct value *recurrent_gates_backward(struct lowering *L, const struct block *b, struct value *df, int c)
{
    const struct recurrent_block *r = recurrent_of(b);
    struct recurrent_work *W = recurrent_work(L);
    const int64_t r0 = rows_of(b, c).row0, r1 = rows_of(b, c).row1;
    const enum dtype T = L->s.key.dtype;
    struct linear_call call = {&r->out, .rows = r1 - r0, .y = {df, r0, T}, .x = {&W->y, r0, T}};
    if (gates_first(r))
        return gates_first_backward(L, b, df, c);
    value_new(L, &W->y, c);
    lower_linear_dx(L, &call);
    gate_backward(L, b, &W->y, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, &r->out, df, T, r0, r1);
    value_drop(L, &W->y, c);
    if (!norms_first(r))
        return &W->o;
    struct value *dn = &W->n;
    if (T != F32) {
        dn = &W->dn;
        value_new(L, dn, c);
        lower_cast_rows(L, dn, r0, F32, &W->n, r0, T, r1 - r0);
    }
    norm_backward(L, b, &W->o, dn, c);
    return &W->dout;
}
