/* Experts that read and give rows narrower than the stream: a map before them and one behind their sum, where the token's own rank is. */
#include "plan/lower/blocks/narrow.h"

#include "plan/lower/blocks/rows.h"
#include "plan/lower/linear.h"
#include "plan/lower/pieces.h"
#include "plan/lower/value.h"
#include "plan/lower/visit.h"

static struct narrow_work *work_of(const struct lowering *L)
{
    return &experts_work_of(L)->narrow;
}

void narrow_values(struct lowering *L)
{
    struct narrow_work *N = work_of(L);
    const int64_t dim = L->m->config.expert_dim;
    experts_value(L, &N->input, "narrow.input", dim, L->s.key.dtype);
    experts_value(L, &N->gradient, "narrow.gradient", dim, L->s.key.dtype);
    experts_value(L, &N->sum, "narrow.sum", dim, F32);
}

struct value *experts_input(const struct lowering *L, const struct block *b)
{
    return narrow_is(b) ? &work_of(L)->input : b->normed;
}

/* Returns a product of one of the two maps. */
static struct linear_call call_of(const struct lowering *L, const struct block *b, int c, const struct model_linear *w,
                                  struct value *y, struct value *x)
{
    const struct expert_rows r = experts_rows_of(b, c);
    const enum dtype T = L->s.key.dtype;
    return (struct linear_call){w, .rows = r.n, .y = {y, r.first, T}, .x = {x, r.first, T}};
}

void experts_make_input(struct lowering *L, const struct block *b, int c)
{
    struct value *input = &work_of(L)->input;
    const struct linear_call call = call_of(L, b, c, &experts_weights(b)->descend, input, b->normed);
    if (!narrow_is(b)) {
        block_norm(L, b, c);
        return;
    }
    if (value_on_device(input, c))
        return;
    block_norm(L, b, c);
    value_new(L, input, c);
    lower_linear(L, &call);
}

/* Rounds the sum to the storage type. */
static void round_sum(struct lowering *L, const struct block *b, struct value *to, int c)
{
    const struct expert_rows r = experts_rows_of(b, c);
    value_new(L, to, c);
    lower_cast_rows(L, to, r.first, L->s.key.dtype, &work_of(L)->sum, r.first, F32, r.n);
    value_drop(L, &work_of(L)->sum, c);
}

void narrow_keep_sum(struct lowering *L, struct value *v, int c)
{
    round_sum(L, v->block, v, c);
}

void narrow_branch(struct lowering *L, const struct block *b, int c, int accumulate)
{
    struct experts_layer *x = b->values;
    struct linear_call call = call_of(L, b, c, &experts_weights(b)->ascend, b->acc, &x->sum);
    call.y.type = F32;
    call.accumulate = accumulate;
    rows_begin(L, b, c, accumulate);
    lower_linear(L, &call);
}

struct value *narrow_begin_gradient(struct lowering *L, const struct block *b, struct value *df, int c)
{
    struct experts_layer *x = b->values;
    struct narrow_work *N = work_of(L);
    struct linear_call call = call_of(L, b, c, &experts_weights(b)->ascend, df, &x->sum);
    lower_linear_dw(L, &call);
    value_new(L, &N->gradient, c);
    call.x.value = &N->gradient;
    lower_linear_dx(L, &call);
    return &N->gradient;
}

void narrow_end_gradient(struct lowering *L, const struct block *b, int c, int accumulate)
{
    struct narrow_work *N = work_of(L);
    struct linear_call call = call_of(L, b, c, &experts_weights(b)->descend, &N->gradient, b->normed);
    value_drop(L, &N->gradient, c);
    round_sum(L, b, &N->gradient, c);
    block_norm(L, b, c);
    lower_linear_dw(L, &call);
    call.x = (struct linear_side){b->acc, call.x.row, F32};
    call.accumulate = accumulate;
    rows_begin(L, b, c, accumulate);
    lower_linear_dx(L, &call);
    value_drop(L, &N->gradient, c);
}
