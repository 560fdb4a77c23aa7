/* Norms, residual adds, rope and casts, forward and backward. */
#include "plan/lower/pieces.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"

#define DEV TIER_DEVICE

static void norm_attrs(const struct lowering *L, const struct model_norm *n, struct op_attrs *a, int64_t rows)
{
    a->norm.rows = rows;
    a->norm.dim = L->m->config.dim;
    a->norm.eps = L->m->config.norm_eps;
    a->norm.kind = n->kind;
    a->norm.dtype = (int32_t)L->s.dtype;
}

void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_NORM, LANE_COMPUTE);
    norm_attrs(L, n, a, r1 - r0);
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    arg_param(L, 2, n->weight);
    if (n->bias >= 0)
        arg_param(L, 3, n->bias);
    emit_done(L, 0);
}

/* dx += gradient of the norm's input, given dy in fp32. */
void lower_norm_backward(struct lowering *L, const struct model_norm *n, struct value *x, struct value *dy, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    struct op_attrs *a = emit(L, OP_NORM_GRAD, LANE_COMPUTE);
    norm_attrs(L, n, a, r1 - r0);
    arg_update(L, 0, &L->dx, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    arg_param(L, 2, n->weight);
    arg_read(L, 3, dy, r0, r1, DEV);
    if (trained(L, n->weight))
        a->norm.accumulate = arg_grad(L, 4, n->weight, 0, param_of(L, n->weight)->elements);
    if (n->bias >= 0 && trained(L, n->bias))
        a->norm.accumulate = arg_grad(L, 5, n->bias, 0, param_of(L, n->bias)->elements);
    emit_done(L, 0);
}

/* y = x + delta (+ bias) */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_ADD, LANE_COMPUTE);
    a->add.rows = r1 - r0;
    a->add.dim = L->m->config.dim;
    a->add.dtype = (int32_t)L->s.dtype;
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    arg_read(L, 2, delta, r0, r1, DEV);
    if (w->bias >= 0)
        arg_bias(L, 3, w);
    emit_done(L, 0);
}

void lower_rope(struct lowering *L, struct value *x, int64_t r0, int64_t r1, int64_t p0, int heads, enum dtype type, int inverse)
{
    if (L->m->pos_embed >= 0)
        return;
    struct op_attrs *a = emit(L, OP_ROPE, LANE_COMPUTE);
    a->rope.rows = r1 - r0;
    a->rope.heads = heads;
    a->rope.head_dim = (int32_t)L->m->config.head_dim;
    a->rope.x_type = type;
    a->rope.inverse = inverse;
    arg_update(L, 0, x, r0, r1, DEV);
    arg_read(L, 1, &L->positions, p0, p0 + r1 - r0, DEV);
    arg_read(L, 2, &L->inv_freq, 0, L->inv_freq.rows, DEV);
    emit_done(L, 0);
}

/* y = x, element by element, both whole. */
void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type)
{
    struct op_attrs *a = emit(L, OP_CAST, LANE_COMPUTE);
    a->cast.n = x->rows * x->row_bytes / dtype_size(x_type);
    a->cast.y_type = y_type;
    a->cast.x_type = x_type;
    arg_write(L, 0, y, 0, y->rows, DEV);
    arg_read(L, 1, x, 0, x->rows, DEV);
    emit_done(L, 0);
}
