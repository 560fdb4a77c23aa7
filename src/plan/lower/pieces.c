/* The pieces that layers are made of: linear maps, norms, residual adds, rope and activations, forward and backward, as
 * instructions. */
#include "plan/lower/pieces.h"

#include "plan/lower/emit.h"

#define DEV TIER_DEVICE

const struct model_param *param_of(const struct lowering *L, int param)
{
    return &L->m->params[param];
}

/* A parameter as an argument (all of it). */
void arg_param(struct lowering *L, int arg, int param)
{
    const struct model_param *p = param_of(L, param);
    arg_read(L, arg, &L->units[p->unit].param, p->offset, p->offset + p->elements, DEV);
}

void arg_bias(struct lowering *L, int arg, const struct model_linear *w)
{
    const struct model_param *p = param_of(L, w->bias);
    arg_read(L, arg, &L->units[p->unit].param, p->offset + w->first_out, p->offset + w->first_out + w->out, DEV);
}

int trained(const struct lowering *L, int param)
{
    return param >= 0 && param_of(L, param)->trained;
}

/* The part of a linear map that makes outputs [first, first + out) of its own. */
static struct model_linear out_slice(const struct model_linear *w, int64_t first, int64_t out)
{
    struct model_linear s = *w;
    s.first_out += first;
    s.out = out;
    return s;
}

struct weight_slice {
    int64_t first, elements; /* declared range within the parameter */
};

/* Where outputs [first_out, +out) x inputs [first_in, +in) lie in the stored matrix. The kernel's pointer is the operand's start,
 * so the range begins at the first element used and ends after the last. */
static struct weight_slice slice_of(const struct model_linear *w, int64_t first_in, int64_t in)
{
    int64_t r0 = w->transposed ? w->first_out : first_in, nr = w->transposed ? w->out : in;
    int64_t c0 = w->transposed ? first_in : w->first_out, nc = w->transposed ? in : w->out;
    return (struct weight_slice){r0 * w->ld + c0, (nr - 1) * w->ld + nc};
}

static void arg_weight(struct lowering *L, int arg, const struct model_linear *w, int64_t first_in, int64_t in)
{
    const struct model_param *p = param_of(L, w->weight);
    struct weight_slice s = slice_of(w, first_in, in);
    arg_read(L, arg, &L->units[p->unit].param, p->offset + s.first, p->offset + s.first + s.elements, DEV);
}

/* y[rows, out] (+)= x[rows, in] W^T for the slice's outputs and inputs [first_in, first_in + in). */
void lower_linear(struct lowering *L, const struct model_linear *w, int64_t first_in, int64_t in, struct value *y, int64_t r0,
                  int64_t r1, enum dtype y_type, struct value *x, int64_t x0, enum dtype x_type, int accumulate)
{
    struct op_attrs *a = emit(L, OP_GEMM, LANE_COMPUTE);
    a->gemm.m = r1 - r0;
    a->gemm.n = w->out;
    a->gemm.k = in;
    a->gemm.lda = in;
    a->gemm.ldb = w->ld;
    a->gemm.ldc = w->out;
    a->gemm.tb = w->transposed;
    a->gemm.a_type = x_type;
    a->gemm.b_type = (int32_t)L->s.dtype;
    a->gemm.c_type = y_type;
    a->gemm.accumulate = accumulate;
    (accumulate ? arg_update : arg_write)(L, 0, y, r0, r1, DEV);
    arg_read(L, 1, x, x0, x0 + r1 - r0, DEV);
    arg_weight(L, 2, w, first_in, in);
    emit_done(L, 0);
}

/* dx[rows, in] (+)= dy[rows, out] W. */
void lower_linear_dx(struct lowering *L, const struct model_linear *w, int64_t first_in, int64_t in, struct value *dx, int64_t r0,
                     int64_t r1, enum dtype dx_type, struct value *dy, int64_t dy0, enum dtype dy_type, int accumulate)
{
    struct op_attrs *a = emit(L, OP_GEMM, LANE_COMPUTE);
    a->gemm.m = r1 - r0;
    a->gemm.n = in;
    a->gemm.k = w->out;
    a->gemm.lda = w->out;
    a->gemm.ldb = w->ld;
    a->gemm.ldc = in;
    a->gemm.tb = !w->transposed;
    a->gemm.a_type = dy_type;
    a->gemm.b_type = (int32_t)L->s.dtype;
    a->gemm.c_type = dx_type;
    a->gemm.accumulate = accumulate;
    (accumulate ? arg_update : arg_write)(L, 0, dx, r0, r1, DEV);
    arg_read(L, 1, dy, dy0, dy0 + r1 - r0, DEV);
    arg_weight(L, 2, w, first_in, in);
    emit_done(L, 0);
}

/* The gradient argument of elements [first, first + n) of a parameter: written the first time (if the whole range is written),
 * then added to. Returns the op's accumulate flag. */
int arg_grad(struct lowering *L, int arg, int param, int64_t first, int64_t n)
{
    const struct model_param *p = param_of(L, param);
    struct value *g = L->units[p->unit].target;
    int64_t a = p->offset + first, b = a + n;
    int fresh = g->tiles[value_tile_at(g, a)].fresh;
    for (int i = value_tile_at(g, a); i < g->n_tiles && g->tiles[i].row0 < b; i++)
        g->tiles[i].fresh = 0;
    (fresh ? arg_write : arg_update)(L, arg, g, a, b, DEV);
    return !fresh;
}

/* Whether the slice is contiguous rows of the stored matrix, so that a first write leaves no hole. */
static int slice_is_whole(const struct model_linear *w, int64_t in)
{
    return w->transposed ? in == w->ld : w->out == w->ld;
}

/* dW (+)= dy^T x (stored [out, in]) or x^T dy (stored [in, out]). */
void lower_linear_dw(struct lowering *L, const struct model_linear *w, int64_t first_in, int64_t in, struct value *dy, int64_t r0,
                     int64_t r1, enum dtype dy_type, struct value *x, int64_t x0, enum dtype x_type)
{
    if (!trained(L, w->weight))
        return;
    const struct model_param *p = param_of(L, w->weight);
    struct value *g = L->units[p->unit].target;
    struct weight_slice s = slice_of(w, first_in, in);
    if (!slice_is_whole(w, in) && g->tiles[value_tile_at(g, p->offset)].fresh) {
        /* column slices: the matrix starts at zero and every slice adds */
        struct op_attrs *f = emit(L, OP_FILL, LANE_COMPUTE);
        f->fill.bytes = p->elements * 4;
        arg_grad(L, 0, w->weight, 0, p->elements);
        emit_done(L, 0);
    }
    struct op_attrs *a = emit(L, OP_GEMM, LANE_COMPUTE);
    a->gemm.m = w->transposed ? w->out : in;
    a->gemm.n = w->transposed ? in : w->out;
    a->gemm.k = r1 - r0;
    a->gemm.ta = 1;
    a->gemm.lda = a->gemm.m;
    a->gemm.ldb = a->gemm.n;
    a->gemm.ldc = w->ld;
    a->gemm.a_type = w->transposed ? dy_type : x_type;
    a->gemm.b_type = w->transposed ? x_type : dy_type;
    a->gemm.c_type = F32;
    if (slice_is_whole(w, in)) {
        a->gemm.accumulate = arg_grad(L, 0, w->weight, s.first, s.elements);
    } else {
        a->gemm.accumulate = 1;
        arg_update(L, 0, g, p->offset + s.first, p->offset + p->elements, DEV);
    }
    int64_t x1 = x0 + r1 - r0;
    arg_read(L, w->transposed ? 1 : 2, dy, r0, r1, DEV);
    arg_read(L, w->transposed ? 2 : 1, x, x0, x1, DEV);
    emit_done(L, 0);
}

/* Cuts of one linear map whose gradient is written in `parts` slices of its inputs or of its outputs. */
static int linear_cuts(const struct lowering *L, const struct model_linear *w, int parts, int slice_inputs, int64_t *cuts, int n,
                       int max)
{
    const struct model_param *p = param_of(L, w->weight);
    for (int i = 0; i < parts && n + 2 <= max; i++) {
        struct model_linear s = slice_inputs ? *w : out_slice(w, i * (w->out / parts), w->out / parts);
        int64_t in = slice_inputs ? w->in / parts : w->in;
        cuts[n++] = p->offset + slice_of(&s, slice_inputs ? i * in : 0, in).first;
        if (w->bias >= 0 && !slice_inputs)
            cuts[n++] = param_of(L, w->bias)->offset + s.first_out;
    }
    return n;
}

int lower_grad_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max)
{
    const struct model_unit *u = &L->m->units[unit];
    for (int i = 0; i < u->n_params && n < max; i++)
        cuts[n++] = param_of(L, u->first_param + i)->offset;
    if (unit < 1 || unit > (int)L->m->config.layers)
        return n;
    const struct model_layer *layer = &L->m->layers[unit - 1];
    int q_parts = (int)(L->m->config.heads / L->s.head_tile), kv_parts = (int)(L->m->config.kv_heads / L->kv_heads_tile);
    n = linear_cuts(L, &layer->q, q_parts, 0, cuts, n, max);
    n = linear_cuts(L, &layer->k, kv_parts, 0, cuts, n, max);
    n = linear_cuts(L, &layer->v, kv_parts, 0, cuts, n, max);
    return linear_cuts(L, &layer->o, q_parts, 1, cuts, n, max);
}

void lower_bias(struct lowering *L, const struct model_linear *w, struct value *y, int64_t r0, int64_t r1)
{
    if (w->bias < 0)
        return;
    struct op_attrs *a = emit(L, OP_BIAS, LANE_COMPUTE);
    a->bias.rows = r1 - r0;
    a->bias.dim = w->out;
    a->bias.dtype = a->bias.y_type = (int32_t)L->s.dtype;
    arg_update(L, 0, y, r0, r1, DEV);
    arg_bias(L, 1, w);
    emit_done(L, 0);
}

void lower_bias_grad(struct lowering *L, const struct model_linear *w, struct value *dy, enum dtype dy_type, int64_t r0,
                     int64_t r1)
{
    if (w->bias < 0 || !trained(L, w->bias))
        return;
    struct op_attrs *a = emit(L, OP_BIAS_GRAD, LANE_COMPUTE);
    a->bias.rows = r1 - r0;
    a->bias.dim = w->out;
    a->bias.dtype = (int32_t)L->s.dtype;
    a->bias.y_type = dy_type;
    a->bias.accumulate = arg_grad(L, 0, w->bias, w->first_out, w->out);
    arg_read(L, 1, dy, r0, r1, DEV);
    emit_done(L, 0);
}

static void norm_attrs(const struct lowering *L, struct op_attrs *a, int64_t rows)
{
    a->norm.rows = rows;
    a->norm.dim = L->m->config.dim;
    a->norm.eps = L->m->config.norm_eps;
    a->norm.kind = L->m->config.family == FAMILY_LLAMA ? NORM_RMS : NORM_LAYER;
    a->norm.dtype = (int32_t)L->s.dtype;
}

void lower_norm_forward(struct lowering *L, const struct model_norm *n, struct value *y, struct value *x, int c)
{
    int64_t r0 = x->tiles[c].row0, r1 = x->tiles[c].row1;
    value_new(L, y, c);
    struct op_attrs *a = emit(L, OP_NORM, LANE_COMPUTE);
    norm_attrs(L, a, r1 - r0);
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
    norm_attrs(L, a, r1 - r0);
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

static void activation_attrs(const struct lowering *L, struct op_attrs *a, int64_t rows, int gated)
{
    a->act.rows = rows;
    a->act.dim = L->m->config.ffn;
    a->act.dtype = (int32_t)L->s.dtype;
    a->act.kind = gated ? 0 : (int32_t)L->m->config.gelu;
}

void lower_activation(struct lowering *L, int l, int c)
{
    int64_t r0 = L->up[l].tiles[c].row0, r1 = L->up[l].tiles[c].row1;
    int gated = L->m->layers[l].gate.weight >= 0;
    value_new(L, &L->act, c);
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU : OP_GELU, LANE_COMPUTE);
    activation_attrs(L, a, r1 - r0, gated);
    arg_write(L, 0, &L->act, r0, r1, DEV);
    if (gated)
        arg_read(L, 1, &L->gate[l], r0, r1, DEV);
    arg_read(L, gated ? 2 : 1, &L->up[l], r0, r1, DEV);
    emit_done(L, 0);
}

void lower_activation_backward(struct lowering *L, int l, int c)
{
    int64_t r0 = L->up[l].tiles[c].row0, r1 = L->up[l].tiles[c].row1;
    int gated = L->m->layers[l].gate.weight >= 0, arg = 0;
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU_GRAD : OP_GELU_GRAD, LANE_COMPUTE);
    activation_attrs(L, a, r1 - r0, gated);
    if (gated)
        arg_update(L, arg++, &L->gate[l], r0, r1, DEV);
    arg_update(L, arg++, &L->up[l], r0, r1, DEV);
    arg_update(L, arg, &L->dact, r0, r1, DEV);
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

int64_t routed_head(const struct lowering *L, int m, int t)
{
    return m * L->local_heads + t * L->s.head_tile;
}

int64_t routed_kv_head(const struct lowering *L, int m, int kt)
{
    int64_t kv = L->m->config.kv_heads; /* with fewer of them than members, neighbours share one */
    return kv >= L->s.ulysses ? m * L->local_kv_heads + kt * L->kv_heads_tile : m * kv / L->s.ulysses;
}

int kv_replica(const struct lowering *L, int m)
{
    return m > 0 && routed_kv_head(L, m, 0) == routed_kv_head(L, m - 1, 0);
}

enum dtype dq_type(const struct lowering *L)
{
    return L->s.ulysses > 1 ? L->s.dtype : F32;
}

struct model_linear q_slice(const struct lowering *L, int layer, int m, int t)
{
    int64_t d = L->m->config.head_dim;
    return out_slice(&L->m->layers[layer].q, routed_head(L, m, t) * d, L->s.head_tile * d);
}

struct model_linear kv_slice(const struct lowering *L, const struct model_linear *w, int m, int kt)
{
    int64_t d = L->m->config.head_dim;
    return out_slice(w, routed_kv_head(L, m, kt) * d, L->kv_heads_tile * d);
}
