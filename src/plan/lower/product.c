/* Products of linear maps, forward and backward, and their biases.
 *
 * Everything is on the device; weights are in storage dtype, their gradients in fp32. */
#include "plan/lower/product.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"

#define DEV TIER_DEVICE

void arg_bias(struct lowering *L, int arg, const struct model_linear *w)
{
    const struct model_param *p = param_of(L, w->bias);
    arg_read(L, arg, &L->units[p->unit].param, p->offset + w->first_out, p->offset + w->first_out + w->out, DEV);
}

struct model_linear linear_outputs(const struct model_linear *w, int64_t first, int64_t out)
{
    struct model_linear s = *w;
    s.first_out += first;
    s.out = out;
    return s;
}

struct weight_slice {
    int64_t rows, cols;      /* shape of the slice in the stored matrix */
    int64_t first, elements; /* range of the parameter's elements that contains the slice */
};

/* Returns the place of outputs [first_out, +out) x inputs [first_in, +in) in the stored matrix. The range of elements begins at
 * the first element used, where the kernel's pointer points, and ends after the last one used. */
static struct weight_slice slice_of(const struct model_linear *w, int64_t first_in, int64_t in)
{
    int64_t r0 = w->transposed ? w->first_out : first_in, nr = w->transposed ? w->out : in;
    int64_t c0 = w->transposed ? first_in : w->first_out, nc = w->transposed ? in : w->out;
    return (struct weight_slice){nr, nc, r0 * w->ld + c0, (nr - 1) * w->ld + nc};
}

int64_t linear_begins(const struct model_linear *w, int64_t first_in)
{
    return slice_of(w, first_in, w->in - first_in).first;
}

static void arg_weight(struct lowering *L, int arg, const struct model_linear *w, int64_t first_in, int64_t in)
{
    const struct model_param *p = param_of(L, w->weight);
    struct weight_slice s = slice_of(w, first_in, in);
    arg_read(L, arg, &L->units[p->unit].param, p->offset + s.first, p->offset + s.first + s.elements, DEV);
}

/* Returns the type of a parameter's elements. */
static enum dtype type_of(const struct lowering *L, int param)
{
    return plan_unit_type(&L->s, &L->m->units[param_of(L, param)->unit]);
}

static int64_t inputs(const struct linear_call *c)
{
    return c->in > 0 ? c->in : c->w->in;
}

int lower_rounds_dlogits(const struct lowering *L)
{
    return L->s.target->capability > 0 && L->s.key.dtype == BF16;
}

/* --- Quantised weights --- */

/* Quantised matrices are dequantised right before each product, for that product alone, tile by tile. A tile has all elements
 * that some columns of the result need, so that no sum changes its order. It is at most as large as the unit's value
 * `dequantised`.
 *
 * A tile begins at a multiple of ROUND columns: there addresses are aligned and blocks of NF4 begin. */
enum { ROUND = 64 };

/* Returns the columns of a tile of a result of n columns, each a sum of k products. */
static int64_t tile_columns(const struct lowering *L, const struct model_linear *w, int64_t n, int64_t k)
{
    const struct model_param *p = param_of(L, w->weight);
    const int64_t most = p->packed_bytes > 0 ? L->units[p->unit].dequantised.rows / k : n;
    if (n <= most)
        return n;
    return round_up(ceil_div(n, ceil_div(n, most / ROUND * ROUND)), ROUND);
}

/* Elements of a quantised matrix, in its order in files: `rows` runs of `cols` elements, from run to run `ld`. */
struct stored {
    int64_t first, rows, cols, ld;
};

/* Finds a slice in the file's order: dense rows or, of an interleaved matrix, heads. */
static struct stored stored_of(struct lowering *L, const struct linear_call *c, const struct weight_slice *s)
{
    const struct model_param *p = param_of(L, c->w->weight);
    const int64_t ld = c->w->ld;
    struct param_heads heads;
    if (s->cols < ld && p->parts == 0)
        return (struct stored){s->first, s->rows, s->cols, ld};
    if (p->parts == 0)
        return (struct stored){s->first, 1, s->rows * ld, s->rows * ld};
    if (s->cols < ld || !model_param_heads(p, s->first / ld, s->rows, &heads))
        L->st = status_fail(ERR_CORRUPT, "planner: a product reads a part of a head of %s", p->name);
    else
        return (struct stored){heads.first * ld, s->rows / heads.rows, heads.rows * ld, heads.apart * ld};
    return (struct stored){0, 1, ld, ld};
}

/* Dequantises the part of the matrix that the product reads, as dense rows: [rows, cols] of the stored matrix. */
static void dequantise(struct lowering *L, const struct linear_call *c)
{
    const struct model_param *p = param_of(L, c->w->weight);
    const struct quantised q = model_quantised(&L->m->config, p);
    const struct weight_slice s = slice_of(c->w, c->first_in, inputs(c));
    const struct stored from = stored_of(L, c, &s);
    const int64_t codes = p->packed_offset + quantised_scale_bytes(&q), each = quantised_per_byte(q.form),
                  end = from.first + (from.rows - 1) * from.ld + from.cols;
    struct unit_values *u = &L->units[p->unit];
    u->dequantised.tiles[0].place[DEV] =
        (struct place){buffer_new(L, DEV, s.rows * s.cols * u->dequantised.row_bytes, CLASS_WORK), 0};
    struct op_attrs *a = emit(L, OP_DEQUANTISE, LANE_COMPUTE);
    a->dequantise.rows = from.rows;
    a->dequantise.cols = from.cols;
    a->dequantise.first = from.first;
    a->dequantise.ld = from.ld;
    a->dequantise.n = q.rows * q.columns;
    a->dequantise.columns = q.form == QUANTISED_INT8 ? q.columns : 0;
    a->dequantise.y_type = (int32_t)L->s.key.dtype;
    a->dequantise.form = (int32_t)q.form;
    arg_write(L, 0, &u->dequantised, 0, s.rows * s.cols, DEV);
    arg_read(L, 1, &u->packed, codes + from.first / each, codes + ceil_div(end, each), DEV);
    arg_read(L, 2, &u->packed, p->packed_offset, codes, DEV);
    emit_done(L, 0);
}

static void arg_dequantised(struct lowering *L, int arg, const struct linear_call *c)
{
    const struct weight_slice s = slice_of(c->w, c->first_in, inputs(c));
    arg_read(L, arg, &L->units[param_of(L, c->w->weight)->unit].dequantised, 0, s.rows * s.cols, DEV);
}

/* --- Products --- */

/* Returns the factor of a product: that of the call times that of the map; 0: 1. */
static float scale_of(const struct linear_call *c)
{
    if (c->w->factor == 0.0f)
        return c->scale;
    return c->scale == 0.0f ? c->w->factor : c->scale * c->w->factor;
}

/* Computes columns [first, first + n) of result[rows, ...] (+)= source[rows, k] times the weight or its transpose. The call has
 * just these columns' range of the weight. */
static void multiply(struct lowering *L, const struct linear_call *c, const struct linear_side *result,
                     const struct linear_side *source, int64_t first, int64_t n, int64_t k, int transposed)
{
    const int packed = param_of(L, c->w->weight)->packed_bytes > 0, keeps = !c->accumulate && first + result->first > 0;
    if (packed)
        dequantise(L, c);
    struct op_attrs *a = emit(L, OP_GEMM, LANE_COMPUTE);
    a->gemm.m = c->rows;
    a->gemm.n = n;
    a->gemm.k = k;
    a->gemm.lda = source->ld;
    a->gemm.ldb = packed ? slice_of(c->w, c->first_in, inputs(c)).cols : c->w->ld;
    a->gemm.ldc = result->ld;
    a->gemm.tb = transposed;
    a->gemm.a_type = source->type;
    a->gemm.b_type = (int32_t)type_of(L, c->w->weight);
    a->gemm.c_type = result->type;
    a->gemm.c_first = (int32_t)(first + result->first);
    a->gemm.a_first = (uint32_t)source->first & (UINT32_MAX >> 1);
    a->gemm.accumulate = c->accumulate ? GEMM_ADDS : keeps ? GEMM_KEEPS : GEMM_WRITES;
    a->gemm.scale = scale_of(c);
    (c->accumulate || keeps ? arg_update : arg_write)(L, 0, result->value, result->row, result->row + c->rows, DEV);
    arg_read(L, 1, source->value, source->row, source->row + c->rows, DEV);
    if (packed)
        arg_dequantised(L, 2, c);
    else
        arg_weight(L, 2, c->w, c->first_in, inputs(c));
    emit_done(L, 0);
}

/* Returns the call with its defaults filled in: the number of inputs, and the elements from row to row of both sides. */
static struct linear_call spaced(const struct linear_call *c)
{
    struct linear_call s = *c;
    s.in = inputs(c);
    s.x.ld = c->x.ld ? c->x.ld : s.in;
    s.y.ld = c->y.ld ? c->y.ld : c->w->out;
    return s;
}

void linear_product(struct lowering *L, const struct linear_call *c)
{
    struct linear_call part = spaced(c);
    const int64_t tile = tile_columns(L, c->w, c->w->out, part.in);
    for (int64_t first = 0; first < c->w->out; first += tile) {
        const struct model_linear w = linear_outputs(c->w, first, min_i64(tile, c->w->out - first));
        part.w = &w;
        multiply(L, &part, &part.y, &part.x, first, w.out, part.in, w.transposed);
    }
}

void linear_product_dx(struct lowering *L, const struct linear_call *c)
{
    struct linear_call part = spaced(c);
    const int64_t in = part.in, tile = tile_columns(L, c->w, in, c->w->out);
    for (int64_t first = 0; first < in; first += tile) {
        part.first_in = c->first_in + first;
        part.in = min_i64(tile, in - first);
        multiply(L, &part, &part.x, &part.y, first, part.in, c->w->out, !c->w->transposed);
    }
}

/* Tells whether the slice is contiguous rows of the stored matrix, so that a first write leaves no hole. */
static int slice_is_whole(const struct model_linear *w, int64_t in)
{
    return w->transposed ? in == w->ld : w->out == w->ld;
}

/* Computes dW = dy^T x of a matrix stored [out, in], or x^T dy of one stored [in, out]. */
void linear_product_dw(struct lowering *L, const struct linear_call *c)
{
    const struct model_linear *w = c->w;
    if (!trained(L, w->weight))
        return;
    const struct model_param *p = param_of(L, w->weight);
    int64_t in = inputs(c);
    struct weight_slice s = slice_of(w, c->first_in, in);
    const struct linear_side *rows = w->transposed ? &c->y : &c->x, *columns = w->transposed ? &c->x : &c->y;
    int whole = slice_is_whole(w, in);
    if (!whole) /* column slices leave holes, so the gradient is set to zero first and every slice adds */
        zero_gradient(L, w->weight);
    struct op_attrs *a = emit(L, OP_GEMM, LANE_COMPUTE);
    a->gemm.m = w->transposed ? w->out : in;
    a->gemm.n = w->transposed ? in : w->out;
    a->gemm.k = c->rows;
    a->gemm.ta = 1;
    a->gemm.lda = rows->ld ? rows->ld : a->gemm.m;
    a->gemm.ldb = columns->ld ? columns->ld : a->gemm.n;
    a->gemm.ldc = w->ld;
    a->gemm.a_type = rows->type;
    a->gemm.b_type = columns->type;
    a->gemm.c_type = F32;
    a->gemm.scale = scale_of(c);
    if (whole) {
        a->gemm.accumulate = arg_grad(L, 0, w->weight, s.first, s.elements);
    } else {
        a->gemm.accumulate = 1;
        arg_update(L, 0, L->units[p->unit].target, p->offset + s.first, p->offset + p->elements, DEV);
    }
    arg_read(L, w->transposed ? 1 : 2, c->y.value, c->y.row, c->y.row + c->rows, DEV);
    arg_read(L, w->transposed ? 2 : 1, c->x.value, c->x.row, c->x.row + c->rows, DEV);
    emit_done(L, 0);
}

static void bias_attrs(struct op_attrs *a, const struct lowering *L, const struct model_linear *w, const struct linear_side *y,
                       int64_t rows)
{
    a->bias.rows = rows;
    a->bias.dim = w->out;
    a->bias.dtype = (int32_t)type_of(L, w->bias);
    a->bias.y_type = (int32_t)y->type;
    a->bias.ld = y->ld == w->out ? 0 : y->ld;
}

void lower_bias_of(struct lowering *L, const struct model_linear *w, const struct linear_side *y, int64_t rows)
{
    if (w->bias < 0)
        return;
    bias_attrs(emit(L, OP_BIAS, LANE_COMPUTE), L, w, y, rows);
    arg_update(L, 0, y->value, y->row, y->row + rows, DEV);
    arg_bias(L, 1, w);
    emit_done(L, 0);
}

void lower_bias_grad_of(struct lowering *L, const struct model_linear *w, const struct linear_side *dy, int64_t rows)
{
    if (w->bias < 0 || !trained(L, w->bias))
        return;
    struct op_attrs *a = emit(L, OP_BIAS_GRAD, LANE_COMPUTE);
    bias_attrs(a, L, w, dy, rows);
    a->bias.accumulate = arg_grad(L, 0, w->bias, w->first_out, w->out);
    arg_read(L, 1, dy->value, dy->row, dy->row + rows, DEV);
    emit_done(L, 0);
}

void lower_bias(struct lowering *L, const struct model_linear *w, struct value *y, int64_t r0, int64_t r1)
{
    lower_bias_of(L, w, &(struct linear_side){y, r0, L->s.key.dtype, 0}, r1 - r0);
}

void lower_bias_grad(struct lowering *L, const struct model_linear *w, struct value *dy, enum dtype dy_type, int64_t r0,
                     int64_t r1)
{
    lower_bias_grad_of(L, w, &(struct linear_side){dy, r0, dy_type, 0}, r1 - r0);
}
