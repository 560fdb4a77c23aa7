/* Norms, residual adds, rope and casts as instructions, forward and backward. */
#include "plan/lower/pieces.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"

#define DEV TIER_DEVICE

static void norm_attrs(const struct lowering *L, const struct model_norm *n, struct op_attrs *a, int64_t rows)
{
    a->norm.rows = rows;
    a->norm.dim = L->m->config.dim;
    a->norm.eps = n->eps > 0.0f ? n->eps : L->m->config.norm_eps;
    a->norm.kind = n->kind;
    a->norm.dtype = (int32_t)L->s.key.dtype;
}

void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_NORM, LANE_COMPUTE);
    norm_attrs(L, n, a, r1 - r0);
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    if (n->weight >= 0)
        arg_param(L, 2, n->weight);
    if (n->bias >= 0)
        arg_param(L, 3, n->bias);
    emit_done(L, 0);
}

/* Adds the gradient of the norm's input to dx, given dy in fp32. */
static void norm_backward(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, struct value *dy,
                          int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    struct op_attrs *a = emit(L, OP_NORM_GRAD, LANE_COMPUTE);
    norm_attrs(L, n, a, r1 - r0);
    arg_update(L, 0, dx, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    if (n->weight >= 0)
        arg_param(L, 2, n->weight);
    arg_read(L, 3, dy, r0, r1, DEV);
    if (trained(L, n->weight))
        a->norm.accumulate = arg_grad(L, 4, n->weight, 0, param_of(L, n->weight)->elements);
    if (n->bias >= 0 && trained(L, n->bias))
        a->norm.accumulate = arg_grad(L, 5, n->bias, 0, param_of(L, n->bias)->elements);
    emit_done(L, 0);
}

void lower_norm_backward(struct lowering *L, const struct model_norm *n, struct value *x, struct value *dy, int c)
{
    norm_backward(L, n, &L->dx, x, dy, c);
}

void lower_clear(struct lowering *L, struct value *v, int64_t r0, int64_t r1)
{
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = (r1 - r0) * v->row_bytes;
    arg_write(L, 0, v, r0, r1, DEV);
    emit_done(L, 0);
}

void lower_norm_gradient(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, struct value *dy,
                         int c)
{
    value_new(L, dx, c);
    lower_clear(L, dx, x->tiles[c].row0, x->tiles[c].row1);
    norm_backward(L, n, dx, x, dy, c);
}

/* Part of a norm's weight for some heads: the whole weight if heads share it, else the heads' own elements. */
struct part {
    int64_t first, n;
};

static struct part head_norm_attrs(const struct lowering *L, const struct model_norm *n, struct op_attrs *a, int64_t rows,
                                   struct heads heads)
{
    norm_attrs(L, n, a, rows);
    if (n->weight < 0) {
        a->norm.rows = rows * heads.n;
        a->norm.dim = heads.dim;
        return (struct part){0, 0};
    }
    const struct model_param *w = param_of(L, n->weight);
    if (w->shape[1] == 0) {
        a->norm.rows = heads.n ? rows * heads.n : rows;
        a->norm.dim = w->shape[0];
        a->norm.segments = n->parts;
        return (struct part){0, w->elements};
    }
    a->norm.dim = heads.n * w->shape[1];
    a->norm.segments = (int32_t)heads.n;
    return (struct part){heads.first * w->shape[1], a->norm.dim};
}

void lower_head_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, int64_t y0, struct value *x,
                             int64_t x0, int64_t rows, struct heads heads)
{
    struct op_attrs *a = emit(L, OP_NORM, LANE_COMPUTE);
    const struct part w = head_norm_attrs(L, n, a, rows, heads);
    arg_write(L, 0, y, y0, y0 + rows, DEV);
    arg_read(L, 1, x, x0, x0 + rows, DEV);
    if (n->weight >= 0)
        arg_param_part(L, 2, n->weight, w.first, w.n);
    emit_done(L, 0);
}

void lower_head_norm_backward(struct lowering *L, const struct model_norm *n, struct value *dx, struct value *x, int64_t x0,
                              struct value *dy, int64_t dy0, int64_t rows, struct heads heads)
{
    lower_clear(L, dx, x0, x0 + rows);
    struct op_attrs *a = emit(L, OP_NORM_GRAD, LANE_COMPUTE);
    const struct part w = head_norm_attrs(L, n, a, rows, heads);
    arg_update(L, 0, dx, x0, x0 + rows, DEV);
    arg_read(L, 1, x, x0, x0 + rows, DEV);
    if (n->weight >= 0)
        arg_param_part(L, 2, n->weight, w.first, w.n);
    arg_read(L, 3, dy, dy0, dy0 + rows, DEV);
    if (trained(L, n->weight))
        a->norm.accumulate = arg_grad(L, 4, n->weight, w.first, w.n);
    emit_done(L, 0);
}

/* Computes y = x + scale (delta (+ bias)). */
void lower_add(struct lowering *L, struct value *y, struct value *x, struct value *delta, const struct model_linear *w, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_ADD, LANE_COMPUTE);
    a->add.rows = r1 - r0;
    a->add.dim = L->m->config.dim;
    a->add.dtype = (int32_t)L->s.key.dtype;
    a->add.scale = (float)L->m->config.residual_scale;
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    arg_read(L, 2, delta, r0, r1, DEV);
    if (w && w->bias >= 0)
        arg_bias(L, 3, w);
    emit_done(L, 0);
}

void lower_multiply(struct lowering *L, struct value *x, int constant, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    struct op_attrs *a = emit(L, OP_MULTIPLY, LANE_COMPUTE);
    a->cast.n = (r1 - r0) * x->row_bytes / dtype_size(L->s.key.dtype);
    a->cast.y_type = a->cast.x_type = (int32_t)L->s.key.dtype;
    arg_update(L, 0, x, r0, r1, DEV);
    arg_param(L, 1, constant);
    emit_done(L, 0);
}

void lower_rope(struct lowering *L, const struct rotation *how, struct value *x, int64_t r0, int64_t r1, int64_t p0)
{
    const struct model_config *c = &L->m->config;
    if (how->rope < 0)
        return;
    const struct rope_set *set = &L->m->ropes[how->rope];
    const double factor = model_rope_attention(L->m, how->rope);
    const int64_t head_dim = how->head_dim > 0 ? how->head_dim : set->head_dim;
    struct op_attrs *a = emit(L, OP_ROPE, LANE_COMPUTE);
    a->rope.rows = r1 - r0;
    a->rope.heads = (int32_t)how->heads;
    a->rope.head_dim = (int32_t)head_dim;
    a->rope.x_type = how->type;
    a->rope.inverse = how->inverse;
    a->rope.rotated = 2 * set->n < head_dim ? (int32_t)(2 * set->n) : 0;
    a->rope.first = (int32_t)how->first;
    a->rope.interleaved = c->rope_interleaved;
    a->rope.factor = factor == 1.0 ? 0.0f : (float)factor;
    arg_update(L, 0, x, r0, r1, DEV);
    arg_read(L, 1, &L->positions, p0, p0 + r1 - r0, DEV);
    if (how->queries && c->rope_slope > 0.0) {
        a->rope.slope = (float)c->rope_slope;
        a->rope.period = (int32_t)c->rope_original_positions;
    }
    arg_read(L, 2, &L->inv_freq, set->first, set->first + set->n, DEV);
    emit_done(L, 0);
}

void lower_columns(struct lowering *L, const struct columns *y, const struct columns *x, int64_t rows, int64_t cols, int keep)
{
    struct op_attrs *a = emit(L, OP_COLUMNS, LANE_COMPUTE);
    a->columns.rows = rows;
    a->columns.cols = cols;
    a->columns.y_first = y->first;
    a->columns.x_first = x->first;
    a->columns.y_ld = y->value->row_bytes / dtype_size(y->type);
    a->columns.x_ld = x->value->row_bytes / dtype_size(x->type);
    a->columns.y_type = (int32_t)y->type;
    a->columns.x_type = (int32_t)x->type;
    a->columns.keep = keep;
    (keep ? arg_update : arg_write)(L, 0, y->value, y->row, y->row + rows, DEV);
    arg_read(L, 1, x->value, x->row, x->row + rows, DEV);
    emit_done(L, 0);
}

void lower_scale(struct lowering *L, struct value *y, struct value *x, double scale, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_CAST, LANE_COMPUTE);
    a->cast.n = (r1 - r0) * x->row_bytes / dtype_size(L->s.key.dtype);
    a->cast.y_type = a->cast.x_type = (int32_t)L->s.key.dtype;
    a->cast.scale = (float)scale;
    arg_write(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, r0, r1, DEV);
    emit_done(L, 0);
}

void lower_cast_rows(struct lowering *L, struct value *y, int64_t y0, enum dtype y_type, struct value *x, int64_t x0,
                     enum dtype x_type, int64_t rows)
{
    struct op_attrs *a = emit(L, OP_CAST, LANE_COMPUTE);
    a->cast.n = rows * x->row_bytes / dtype_size(x_type);
    a->cast.y_type = y_type;
    a->cast.x_type = x_type;
    arg_write(L, 0, y, y0, y0 + rows, DEV);
    arg_read(L, 1, x, x0, x0 + rows, DEV);
    emit_done(L, 0);
}

void lower_cast(struct lowering *L, struct value *y, enum dtype y_type, struct value *x, enum dtype x_type)
{
    lower_cast_rows(L, y, 0, y_type, x, 0, x_type, x->rows);
}
