/* The MLP: a gated unit of two maps, or GELU of one, and a map back. */
#include "plan/lower/blocks/rows.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/value.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* Values of one layer. */
struct mlp_layer {
    struct value up, gate; /* gate: only in gated MLPs */
};

/* Values that the MLPs of one width share. */
struct mlp_width {
    int64_t columns;
    struct value act, dact;
};

/* Values of all widths, in the order of the first layers that have them. */
struct mlp_work {
    int n;
    struct mlp_width of[MODEL_KINDS];
    struct value scalar; /* fp32: each token's number, whose sigmoid multiplies the output, then its gradient */
};

/* Returns the columns between an MLP's maps. */
static int64_t width_of(const struct model_block *b)
{
    return b->mlp.up.out;
}

/* Returns the values of a width, or the place behind the last one. */
static struct mlp_width *find_width(struct mlp_work *W, int64_t columns)
{
    int i = 0;
    while (i < W->n && W->of[i].columns != columns)
        i++;
    return &W->of[i];
}

static struct mlp_work *mlp_all(const struct lowering *L)
{
    return L->shared[BLOCK_MLP];
}

static struct mlp_width *mlp_work(const struct lowering *L, const struct block *b)
{
    return find_width(mlp_all(L), width_of(b->weights));
}

static int is_gated(const struct block *b)
{
    return b->weights->mlp.gate.weight >= 0;
}

static int has_scalar(const struct block *b)
{
    return b->weights->mlp.scalar.weight >= 0;
}

static void activation_attrs(const struct lowering *L, const struct block *b, struct op_attrs *a, int64_t rows)
{
    a->act.rows = rows;
    a->act.dim = width_of(b->weights);
    a->act.dtype = (int32_t)L->s.key.dtype;
    a->act.kind = is_gated(b) ? (int32_t)b->weights->mlp.kind : (int32_t)L->m->config.activation;
    if (is_gated(b) && b->weights->mlp.kind == GATE_CLAMPED) {
        a->act.limit = (float)L->m->config.gate_limit;
        a->act.alpha = (float)L->m->config.gate_alpha;
    }
}

/* Computes act from gate and up if the MLP is gated, or from up alone. */
static void activate(struct lowering *L, const struct block *b, int c)
{
    struct mlp_layer *v = b->values;
    struct mlp_width *W = mlp_work(L, b);
    int64_t r0 = v->up.tiles[c].row0, r1 = v->up.tiles[c].row1;
    int gated = is_gated(b);
    value_new(L, &W->act, c);
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU : OP_GELU, LANE_COMPUTE);
    activation_attrs(L, b, a, r1 - r0);
    arg_write(L, 0, &W->act, r0, r1, DEV);
    if (gated)
        arg_read(L, 1, &v->gate, r0, r1, DEV);
    arg_read(L, gated ? 2 : 1, &v->up, r0, r1, DEV);
    if (has_scalar(b))
        arg_read(L, 3, &mlp_all(L)->scalar, r0, r1, DEV);
    emit_done(L, 0);
}

/* Turns gate, up and the scalar into their gradients in place, and dact, the activation's gradient, into the activation. */
static void activate_backward(struct lowering *L, const struct block *b, int c)
{
    struct mlp_layer *v = b->values;
    struct mlp_width *W = mlp_work(L, b);
    int64_t r0 = v->up.tiles[c].row0, r1 = v->up.tiles[c].row1;
    int gated = is_gated(b), arg = 0;
    struct op_attrs *a = emit(L, gated ? OP_SWIGLU_GRAD : OP_GELU_GRAD, LANE_COMPUTE);
    activation_attrs(L, b, a, r1 - r0);
    if (gated)
        arg_update(L, arg++, &v->gate, r0, r1, DEV);
    arg_update(L, arg++, &v->up, r0, r1, DEV);
    arg_update(L, arg++, &W->dact, r0, r1, DEV);
    if (has_scalar(b))
        arg_update(L, arg, &mlp_all(L)->scalar, r0, r1, DEV);
    emit_done(L, 0);
}

/* --- Forward --- */

static void produce(struct lowering *L, struct value *v, int c, const struct model_linear *w)
{
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    enum dtype T = L->s.key.dtype;
    block_norm(L, v->block, c);
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, T}, .x = {v->block->normed, r0, T}});
    lower_bias(L, w, v, r0, r1);
}

static void produce_gate(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &v->block->weights->mlp.gate);
}

static void produce_up(struct lowering *L, struct value *v, int c)
{
    produce(L, v, c, &v->block->weights->mlp.up);
}

/* Computes the number of each token that weighs the MLP's output. */
static void compute_scalar(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *w = &b->weights->mlp.scalar;
    struct value *v = &mlp_all(L)->scalar;
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    block_norm(L, b, c);
    value_new(L, v, c);
    lower_linear(L, &(struct linear_call){w, .rows = r1 - r0, .y = {v, r0, F32}, .x = {b->normed, r0, L->s.key.dtype}});
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    struct mlp_layer *v = b->values;
    if (is_gated(b))
        value_get(L, &v->gate, c);
    value_get(L, &v->up, c);
    if (has_scalar(b))
        compute_scalar(L, b, c);
}

static const struct model_linear *last(const struct block *b)
{
    return &b->weights->mlp.down;
}

static void branch(struct lowering *L, const struct block *b, int c, int accumulate)
{
    struct value *act = &mlp_work(L, b)->act;
    int64_t r0 = b->normed->tiles[c].row0, r1 = b->normed->tiles[c].row1;
    activate(L, b, c);
    rows_begin(L, b, c, accumulate);
    lower_linear(L, &(struct linear_call){last(b), .rows = r1 - r0, .y = {b->acc, r0, F32}, .x = {act, r0, L->s.key.dtype},
                                          .accumulate = accumulate});
    value_drop(L, act, c);
}

static void drop(struct lowering *L, const struct block *b, int c)
{
    struct mlp_layer *v = b->values;
    if (is_gated(b))
        value_drop(L, &v->gate, c);
    value_drop(L, &v->up, c);
    if (has_scalar(b))
        value_drop(L, &mlp_all(L)->scalar, c);
}

/* --- Backward --- */

/* Computes the gradients of one of the MLP's first maps from dy, the gradient of that map's output, and adds to b->acc, the gradient
 * of the map's input. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct linear_side dy, int c,
                           int accumulate)
{
    int64_t r0 = b->normed->tiles[c].row0, r1 = b->normed->tiles[c].row1;
    struct linear_call call = {w, .rows = r1 - r0, .y = dy, .x = {b->normed, r0, L->s.key.dtype}};
    lower_linear_dw(L, &call);
    lower_bias_grad_of(L, w, &dy, r1 - r0);
    call.x = (struct linear_side){b->acc, r0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

static void gradient(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate)
{
    const struct mlp_block *w = &b->weights->mlp;
    struct mlp_layer *v = b->values;
    struct value *dact = &mlp_work(L, b)->dact, *own = block_gradient(L, b);
    enum dtype T = L->s.key.dtype;
    int64_t r0 = b->normed->tiles[c].row0, r1 = b->normed->tiles[c].row1;
    value_new(L, dact, c);
    struct linear_call call = {&w->down, .rows = r1 - r0, .y = {df, r0, T}, .x = {dact, r0, T}};
    lower_linear_dx(L, &call);
    activate_backward(L, b, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, &w->down, own, T, own->tiles[c].row0, own->tiles[c].row1);
    value_drop(L, dact, c);
    block_norm(L, b, c);
    rows_begin(L, b, c, accumulate);
    if (is_gated(b))
        input_backward(L, b, &w->gate, (struct linear_side){&v->gate, r0, T}, c, accumulate);
    input_backward(L, b, &w->up, (struct linear_side){&v->up, r0, T}, c, accumulate || is_gated(b));
    if (has_scalar(b))
        input_backward(L, b, &w->scalar, (struct linear_side){&mlp_all(L)->scalar, r0, F32}, c, 1);
}

/* --- Creation --- */

static void layer_values(struct lowering *L, struct block *b)
{
    struct mlp_layer *v = b->values = memory_new(L, 1, sizeof *v);
    if (!v)
        return;
    const int64_t cols = width_of(b->weights);
    activation_of_layer(L, b, -1, &(struct activation){&v->up, "up", cols, L->s.key.dtype, CHUNKS, produce_up});
    if (is_gated(b))
        activation_of_layer(L, b, -1, &(struct activation){&v->gate, "gate", cols, L->s.key.dtype, CHUNKS, produce_gate});
}

/* Creates the values of a width, once. Only values of further widths have numbers in their names. */
static void create_width(struct lowering *L, struct mlp_work *W, int64_t columns)
{
    struct mlp_width *x = find_width(W, columns);
    const int number = W->n > 0 ? W->n : -1;
    if (x < W->of + W->n)
        return;
    W->n++;
    x->columns = columns;
    activation_of_work(L, RES_NONE, number, &(struct activation){&x->act, "act", columns, L->s.key.dtype, CHUNKS});
    activation_of_work(L, RES_NONE, number, &(struct activation){&x->dact, "dact", columns, L->s.key.dtype, CHUNKS});
}

static void chunk_values(struct lowering *L)
{
    struct mlp_work *W = L->shared[BLOCK_MLP] = memory_new(L, 1, sizeof *W);
    if (!W)
        return;
    for (int k = 0; k < L->m->n_kinds; k++) {
        const struct model_block *b = model_find_block(&L->m->layers[L->m->kinds[k].first], BLOCK_MLP);
        if (b)
            create_width(L, W, width_of(b));
        if (b && b->mlp.scalar.weight >= 0 && W->scalar.n_tiles == 0)
            activation_of_work(L, RES_NONE, -1, &(struct activation){&W->scalar, "scalar", 1, F32, CHUNKS});
    }
}

/* Cuts the gradient of a matrix that holds both first maps (gate and up), since each map writes its own part. */
static int grad_cuts(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max)
{
    const struct mlp_block *w = &b->weights->mlp;
    if (w->gate.weight != w->up.weight)
        return n;
    n = linear_cuts(L, &w->gate, 1, OF_OUTPUTS, cuts, n, max);
    return linear_cuts(L, &w->up, 1, OF_OUTPUTS, cuts, n, max);
}

static const struct row_block rows = {.fetch = fetch, .branch = branch, .gradient = gradient, .drop = drop, .last = last};
const struct block_lowering mlp_lowering = {.grad_cuts = grad_cuts,
                                            .layer_values = layer_values,
                                            .chunk_values = chunk_values,
                                            .rows = &rows,
                                            .produce = rows_output,
                                            .backward = rows_backward};
