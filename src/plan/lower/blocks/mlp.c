/* The MLP: a gated unit of two maps, or GELU of one, and a map back. */
#include "plan/lower/blocks/block.h"

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

static struct mlp_width *mlp_work(const struct lowering *L, const struct block *b)
{
    return find_width(L->shared[BLOCK_MLP], width_of(b->weights));
}

static int is_gated(const struct block *b)
{
    return b->weights->mlp.gate.weight >= 0;
}

/* Drops the values that a chunk's visit used. */
static void drop_chunk(struct lowering *L, const struct block *b, int c)
{
    struct mlp_layer *v = b->values;
    block_drop_stream(L, b, c);
    value_drop(L, b->normed, c);
    if (is_gated(b))
        value_drop(L, &v->gate, c);
    value_drop(L, &v->up, c);
    value_drop(L, &mlp_work(L, b)->act, c);
    value_drop(L, &L->acc, c);
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
    emit_done(L, 0);
}

/* Turns gate and up into their gradients in place, and dact, the activation's gradient, into the activation. */
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
    arg_update(L, arg, &W->dact, r0, r1, DEV);
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

static void produce_output(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct model_linear *down = &b->weights->mlp.down;
    struct mlp_layer *kept = b->values;
    int64_t r0 = v->tiles[c].row0, r1 = v->tiles[c].row1;
    value_get(L, b->in, c);
    if (is_gated(b))
        value_get(L, &kept->gate, c);
    value_get(L, &kept->up, c);
    value_drop(L, b->normed, c);
    activate(L, b, c);
    value_new(L, &L->acc, c);
    lower_linear(L, &(struct linear_call){down, .rows = r1 - r0, .y = {&L->acc, r0, F32},
                                          .x = {&mlp_work(L, b)->act, r0, L->s.key.dtype}});
    block_add(L, b, v, down, c);
    drop_chunk(L, b, c);
}

/* --- Backward --- */

/* Makes the gradients of one of the MLP's first maps from dy, the gradient of that map's output, and adds to L->acc, the gradient
 * of the map's input. */
static void input_backward(struct lowering *L, const struct block *b, const struct model_linear *w, struct value *dy, int c,
                           int accumulate)
{
    int64_t r0 = dy->tiles[c].row0, r1 = dy->tiles[c].row1;
    enum dtype T = L->s.key.dtype;
    struct linear_call call = {w, .rows = r1 - r0, .y = {dy, r0, T}, .x = {b->normed, r0, T}};
    lower_linear_dw(L, &call);
    lower_bias_grad(L, w, dy, T, r0, r1);
    call.x = (struct linear_side){&L->acc, r0, F32};
    call.accumulate = accumulate;
    lower_linear_dx(L, &call);
}

/* Makes the gradient of the MLP's branch; a normalised branch is computed again first. */
static void make_gradient(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *down = &b->weights->mlp.down;
    struct value *act = &mlp_work(L, b)->act;
    int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    if (b->weights->after.kind != NORM_NONE) {
        activate(L, b, c);
        value_new(L, &L->acc, c);
        lower_linear(L, &(struct linear_call){down, .rows = r1 - r0, .y = {&L->acc, r0, F32}, .x = {act, r0, L->s.key.dtype}});
        value_drop(L, act, c);
    }
    block_make_gradient(L, b, down, c);
    value_drop(L, &L->acc, c);
}

static void backward_chunk(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *down = &b->weights->mlp.down;
    struct mlp_layer *v = b->values;
    struct value *dact = &mlp_work(L, b)->dact, *df = block_gradient(L, b);
    enum dtype T = L->s.key.dtype;
    int64_t r0 = b->in->tiles[c].row0, r1 = b->in->tiles[c].row1;
    block_get_gradient(L, b, c);
    value_get(L, b->source, c);
    if (is_gated(b))
        value_get(L, &v->gate, c);
    value_get(L, &v->up, c);
    if (df != &L->dx)
        make_gradient(L, b, c);
    value_new(L, dact, c);
    struct linear_call call = {down, .rows = r1 - r0, .y = {df, r0, T}, .x = {dact, r0, T}};
    lower_linear_dx(L, &call);
    activate_backward(L, b, c);
    lower_linear_dw(L, &call);
    lower_bias_grad(L, down, df, T, r0, r1);
    if (df != &L->dx)
        value_drop(L, df, c);
    value_drop(L, dact, c);
    block_norm(L, b, c);
    value_new(L, &L->acc, c);
    if (is_gated(b))
        input_backward(L, b, &b->weights->mlp.gate, &v->gate, c, 0);
    input_backward(L, b, &b->weights->mlp.up, &v->up, c, is_gated(b));
    lower_norm_backward(L, b->norm, b->source, &L->acc, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
    drop_chunk(L, b, c);
}

static void backward(struct lowering *L, struct block *b)
{
    for (int c = 0; c < L->n_chunks; c++)
        backward_chunk(L, b, c);
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

const struct block_lowering mlp_lowering = {.grad_cuts = grad_cuts,
                                            .layer_values = layer_values,
                                            .chunk_values = chunk_values,
                                            .produce = produce_output,
                                            .backward = backward};
