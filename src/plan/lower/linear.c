/* Linear maps with their adapters, and the cuts of their gradients. */
#include "plan/lower/linear.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/param.h"

#include <assert.h>

#define DEV TIER_DEVICE

/* Number of maps whose slices alternate: q, k and v. */
enum { AT_WORK = 3 };
/* Place of A x of maps in fp32 units, routers, in runs of another type; the first AT_WORK are of the run's type. */
enum { IN_FP32 = AT_WORK, DOWNS };

/* Rows of a value at one version, by which a product already made is recognised. */
struct source {
    int tensor, version;
    int64_t row, column, first, n; /* first, n: range of the map's outputs or inputs that the product covers */
};

/* A transient product, and the rows that its chunk at work was computed from. */
struct product {
    struct value value;
    int adapter; /* parameter A of the adapter; -1: the product is empty */
    int64_t chunk_row;
    struct source last; /* the rows that the product was computed from */
    int64_t
        outputs; /* for s B^T dy: number of the map's outputs that the sum covers so far; slices come in any order, each once */
};

/* Transients of dropout for inputs of one width: the masked inputs of a chunk, and their gradient before it is masked. */
struct masked {
    int64_t cols;       /* columns; 0: unused so far */
    struct value x, dx; /* x in storage type, dx in fp32 */
    int adapter;        /* parameter A of the map whose inputs x holds; -1: none */
    int64_t chunk_row;
    struct source last; /* the rows that x was made from */
};

/* Most different widths of maps' inputs, slices included. */
enum { MOST_WIDTHS = 8 };

struct adapter_work {
    struct product down[DOWNS]; /* A x, in the type of the map's parameters */
    struct product up[AT_WORK]; /* s B^T dy, in fp32 */
    struct value sum;           /* A x added up over slices of inputs, in fp32 */
    struct value found, dfound; /* embedding: the tokens' rows of A, in storage type, and their gradient, in fp32 */
    int next_down, next_up;
    struct masked masked[MOST_WIDTHS];
};

static void work_value(struct lowering *L, struct value *v, const char *name, int index, enum dtype type)
{
    activation_of_work(L, RES_NONE, index, &(struct activation){v, name, L->m->most_rank, type, CHUNKS});
}

void adapter_values(struct lowering *L)
{
    struct adapter_work *W = L->adapters = L->m->most_rank > 0 ? memory_new(L, 1, sizeof *W) : NULL;
    for (int i = 0; W && L->st == OK && i < AT_WORK; i++) {
        work_value(L, &W->down[i].value, "adapter.down", i, L->s.key.dtype);
        work_value(L, &W->up[i].value, "adapter.up", i, F32);
        W->down[i].adapter = W->up[i].adapter = -1;
    }
    if (!W)
        return;
    W->down[IN_FP32].adapter = -1;
    if (L->m->adapts_routers && L->s.key.dtype != F32)
        work_value(L, &W->down[IN_FP32].value, "adapter.down", IN_FP32, F32);
    work_value(L, &W->sum, "adapter.sum", -1, F32);
    const int64_t rank = L->m->embedding.rank;
    if (rank > 0) {
        activation_of_work(L, RES_NONE, -1, &(struct activation){&W->found, "adapter.found", rank, L->s.key.dtype, STREAM});
        activation_of_work(L, RES_NONE, -1, &(struct activation){&W->dfound, "adapter.dfound", rank, F32, STREAM});
    }
}

/* --- Its two maps --- */

static struct model_linear down_map(const struct model_linear *w)
{
    return (struct model_linear){.weight = w->down, .bias = -1, .transposed = 1, .in = w->in, .out = w->rank, .ld = w->in};
}

/* Returns B as a map to the outputs of w, which may be a slice. */
static struct model_linear up_map(const struct model_linear *w)
{
    return (struct model_linear){
        .weight = w->up, .bias = -1, .transposed = 1, .in = w->rank, .out = w->out, .first_out = w->first_out, .ld = w->rank};
}

/* Returns the factor of B A x in the map's outputs. */
static float share_of(const struct model_linear *w)
{
    return w->factor != 0.0f ? w->factor * w->adapter_scale : w->adapter_scale;
}

static int64_t all_outputs(const struct lowering *L, const struct model_linear *w)
{
    return param_of(L, w->up)->shape[0];
}

static int64_t inputs(const struct linear_call *c)
{
    return c->in > 0 ? c->in : c->w->in;
}

/* Returns the first row of the call's row chunk. One side of a call lies in row chunks. The other side may be routed: row chunks
 * of ulysses member 0 first, then the rows of further members. */
static int64_t chunk_row(const struct linear_call *c)
{
    return min_i64(c->x.row, c->y.row);
}

/* --- Products at work --- */

static struct source source_of(const struct linear_side *side, int64_t first, int64_t n)
{
    const struct tile *t = &side->value->tiles[value_tile_at(side->value, side->row)];
    return (struct source){side->value->tensor, t->version, side->row, side->first, first, n};
}

static int same_source(const struct source *a, const struct source *b)
{
    return a->tensor == b->tensor && a->version == b->version && a->row == b->row && a->column == b->column &&
           a->first == b->first && a->n == b->n;
}

/* Returns the last of n products that was made for the map, if it is still there; NULL: there is none. */
static struct product *find(struct product *all, int n, const struct model_linear *w)
{
    for (int i = 0; i < n; i++)
        if (all[i].adapter == w->down)
            return &all[i];
    return NULL;
}

/* Returns the oldest of the first AT_WORK products, to be replaced. */
static struct product *oldest(struct product *all, int *next)
{
    struct product *p = &all[*next];
    *next = (*next + 1) % AT_WORK;
    return p;
}

/* Begins a new product of a chunk in place of the former one. */
static void begin(struct lowering *L, struct product *p, const struct model_linear *w, int64_t row)
{
    p->adapter = w->down;
    p->chunk_row = row;
    value_new(L, &p->value, value_tile_at(&p->value, row));
}

static struct linear_side side_of(const struct lowering *L, struct value *v, int64_t row, enum dtype type)
{
    return (struct linear_side){v, row, type, L->m->most_rank};
}

/* --- Dropout --- */

int adapter_drops(const struct lowering *L)
{
    const int trains = (L->duties & DUTY_BACKWARD) || ((L->duties & DUTY_HEAD) && !(L->duties & DUTY_EVALUATE));
    return L->m->config.lora.dropout > 0 && trains;
}

/* Returns the transients of dropout for inputs of `cols` columns; the first call for a width creates them. */
static struct masked *masked_of(struct lowering *L, int64_t cols)
{
    struct masked *all = L->adapters->masked;
    int i = 0;
    while (i < MOST_WIDTHS - 1 && all[i].cols != 0 && all[i].cols != cols)
        i++;
    if (all[i].cols == cols)
        return &all[i];
    if (all[i].cols != 0 && L->st == OK)
        L->st = status_fail(ERR_CORRUPT, "planner: adapters' inputs have more than %d different widths", MOST_WIDTHS);
    all[i].cols = cols;
    all[i].adapter = -1;
    activation_of_work(L, RES_NONE, i, &(struct activation){&all[i].x, "adapter.masked", cols, L->s.key.dtype, CHUNKS});
    activation_of_work(L, RES_NONE, i, &(struct activation){&all[i].dx, "adapter.dmasked", cols, F32, CHUNKS});
    return &all[i];
}

/* Tells whether slices of the layers have the inputs of w divided among them. */
static int divides_inputs(const struct lowering *L, const struct model_linear *w)
{
    return param_of(L, w->down)->n_ranges > 0;
}

/* Returns the numbers of the rows that the call's map reads: the head has rows of the stream. */
static struct value *numbers_of(struct lowering *L, const struct linear_call *c)
{
    return c->w->weight == L->m->head.weight ? &L->end_numbers : &L->numbers;
}

/* Writes x, masked and scaled, into y, or adds it to y. A sum reads x in fp32; a write reads x in y's type. */
static void drop(struct lowering *L, const struct linear_call *c, const struct linear_side *y, const struct linear_side *x,
                 int accumulate)
{
    const double rate = L->m->config.lora.dropout;
    const int64_t row = chunk_row(c);
    assert(x->type == (accumulate ? F32 : y->type));
    struct op_attrs *a = emit(L, OP_DROPOUT, LANE_COMPUTE);
    a->dropout.rows = c->rows;
    a->dropout.cols = inputs(c);
    a->dropout.y_ld = y->ld ? y->ld : inputs(c);
    a->dropout.x_ld = x->ld ? x->ld : inputs(c);
    a->dropout.first = (uint32_t)c->first_in;
    if (divides_inputs(L, c->w)) {
        a->dropout.share = (uint32_t)c->w->in;
        a->dropout.slices = (uint32_t)L->tp;
    }
    a->dropout.module = c->w->dropout_module;
    a->dropout.threshold = (uint32_t)(rate * 0x1p32);
    a->dropout.scale = (float)(1.0 / (1.0 - rate));
    a->dropout.dtype = (int32_t)y->type;
    a->dropout.accumulate = accumulate;
    (accumulate ? arg_update : arg_write)(L, 0, y->value, y->row, y->row + c->rows, DEV);
    arg_read(L, 1, x->value, x->row, x->row + c->rows, DEV);
    arg_read(L, 2, numbers_of(L, c), row, row + c->rows, DEV);
    arg_read(L, 3, &L->record, 0, 1, DEV);
    emit_done(L, 0);
}

/* Returns the call's inputs for A: masked if the program has dropout. */
static struct linear_side seen(struct lowering *L, const struct linear_call *c)
{
    if (!adapter_drops(L))
        return c->x;
    const struct source from = source_of(&c->x, c->first_in, inputs(c));
    struct masked *m = masked_of(L, inputs(c));
    const struct linear_side side = {&m->x, chunk_row(c), L->s.key.dtype, 0};
    if (m->adapter != c->w->down || m->chunk_row != side.row || !same_source(&m->last, &from)) {
        m->adapter = c->w->down;
        m->chunk_row = side.row;
        m->last = from;
        value_new(L, &m->x, value_tile_at(&m->x, side.row));
        drop(L, c, &side, &c->x, 0);
    }
    return side;
}

/* --- The two products --- */

/* Returns the type of A x: that of A. */
static enum dtype down_type(const struct lowering *L, const struct model_linear *w)
{
    return plan_unit_type(&L->s, &L->m->units[param_of(L, w->down)->unit]);
}

/* Returns A x for the call's rows and slice of inputs, computed unless the last product serves. */
static struct linear_side down_product(struct lowering *L, const struct linear_call *c)
{
    struct adapter_work *W = L->adapters;
    const struct source from = source_of(&c->x, c->first_in, inputs(c));
    const enum dtype type = down_type(L, c->w);
    struct product *p = find(W->down, DOWNS, c->w);
    if (!p || p->chunk_row != chunk_row(c) || !same_source(&p->last, &from)) {
        struct model_linear down = down_map(c->w);
        if (!p)
            p = type == L->s.key.dtype ? oldest(W->down, &W->next_down) : &W->down[IN_FP32];
        begin(L, p, c->w, chunk_row(c));
        p->last = from;
        linear_product(
            L, &(struct linear_call){&down, c->first_in, c->in, c->rows, side_of(L, &p->value, p->chunk_row, type), seen(L, c)});
    }
    return side_of(L, &p->value, p->chunk_row, type);
}

/* Returns s B^T dy, summed over the call's slice of outputs and the slices before it. *whole: 1 if these are all outputs of the
 * map. */
static struct linear_side up_product(struct lowering *L, const struct linear_call *c, int *whole)
{
    struct adapter_work *W = L->adapters;
    const int64_t all = all_outputs(L, c->w);
    const struct source from = source_of(&c->y, c->w->first_out, c->w->out);
    struct product *p = find(W->up, AT_WORK, c->w);
    if (!p || p->chunk_row != chunk_row(c) || !same_source(&p->last, &from)) {
        struct model_linear up = up_map(c->w);
        const int first = !p || p->chunk_row != chunk_row(c) || p->outputs == all || c->apart;
        if (first) {
            p = p ? p : oldest(W->up, &W->next_up);
            begin(L, p, c->w, chunk_row(c));
            p->outputs = 0;
        }
        p->last = from;
        p->outputs = c->apart ? all : p->outputs + c->w->out;
        linear_product_dx(L, &(struct linear_call){&up, .rows = c->rows, .y = c->y, .x = side_of(L, &p->value, p->chunk_row, F32),
                                                   .accumulate = !first, .scale = share_of(c->w)});
    }
    *whole = p->outputs == all;
    return side_of(L, &p->value, p->chunk_row, F32);
}

/* --- Passes --- */

/* Adds s B (A x) to y for a call whose x is a slice: A x is summed over the slices, and B is applied once the sum is complete. */
static void forward_by_slices(struct lowering *L, const struct linear_call *c)
{
    struct adapter_work *W = L->adapters;
    struct model_linear down = down_map(c->w), up = up_map(c->w);
    const int64_t row = chunk_row(c);
    const int tile = value_tile_at(&W->sum, row);
    struct linear_side sum = side_of(L, &W->sum, row, F32);
    if (c->first_in == 0)
        value_new(L, &W->sum, tile);
    linear_product(L, &(struct linear_call){&down, c->first_in, c->in, c->rows, sum, seen(L, c), .accumulate = c->first_in > 0});
    if (c->first_in + c->in < c->w->in)
        return;
    linear_product(L, &(struct linear_call){&up, .rows = c->rows, .y = c->y, .x = sum, .accumulate = 1, .scale = share_of(c->w)});
    value_drop(L, &W->sum, tile);
}

static void adapter_forward(struct lowering *L, const struct linear_call *c)
{
    if (c->w->rank == 0)
        return;
    if (inputs(c) < c->w->in) {
        forward_by_slices(L, c);
        return;
    }
    struct model_linear up = up_map(c->w);
    linear_product(L, &(struct linear_call){&up, .rows = c->rows, .y = c->y, .x = down_product(L, c), .accumulate = 1,
                                            .scale = share_of(c->w)});
}

static void adapter_dx(struct lowering *L, const struct linear_call *c)
{
    if (c->w->rank == 0)
        return;
    struct model_linear down = down_map(c->w);
    int whole;
    struct linear_side up = up_product(L, c, &whole);
    if (!whole)
        return;
    if (!adapter_drops(L)) {
        linear_product_dx(L, &(struct linear_call){&down, c->first_in, c->in, c->rows, up, c->x, .accumulate = 1});
        return;
    }
    struct masked *m = masked_of(L, inputs(c));
    const struct linear_side side = {&m->dx, chunk_row(c), F32, 0};
    value_new(L, &m->dx, value_tile_at(&m->dx, side.row));
    linear_product_dx(L, &(struct linear_call){&down, c->first_in, c->in, c->rows, up, side});
    drop(L, c, &c->x, &side, 1);
}

static void adapter_dw(struct lowering *L, const struct linear_call *c)
{
    if (c->w->rank == 0)
        return;
    struct model_linear down = down_map(c->w), up = up_map(c->w);
    if (trained(L, c->w->up))
        linear_product_dw(
            L, &(struct linear_call){&up, .rows = c->rows, .y = c->y, .x = down_product(L, c), .scale = share_of(c->w)});
    int whole;
    struct linear_side gradient = up_product(L, c, &whole);
    if (whole)
        linear_product_dw(L, &(struct linear_call){&down, c->first_in, c->in, c->rows, gradient, seen(L, c)});
}

/* --- The embedding's adapter --- */

/* Emits a lookup of the tokens' rows of A, which is stored by columns, or the op that adds to A's gradient. */
static struct op_attrs *emit_lookup(struct lowering *L, enum op_kind op, int64_t rows, enum dtype type)
{
    const struct model_linear *w = &L->m->embedding;
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->embed.rows = rows;
    a->embed.dim = w->rank;
    a->embed.vocab = w->in;
    a->embed.dtype = (int32_t)type;
    a->embed.by_columns = 1;
    return a;
}

static struct linear_side find_tokens(struct lowering *L, int64_t r0, int64_t r1)
{
    struct value *found = &L->adapters->found;
    value_new(L, found, value_tile_at(found, r0));
    emit_lookup(L, OP_EMBED, r1 - r0, L->s.key.dtype);
    arg_write(L, 0, found, r0, r1, DEV);
    arg_param(L, 1, L->m->embedding.down);
    arg_read(L, 2, &L->tokens, r0, r1, DEV);
    emit_done(L, 0);
    return (struct linear_side){found, r0, L->s.key.dtype, 0};
}

/* Returns the call that applies B to the tile's rows. scale: factor of embeddings; 0: 1. */
static struct linear_call embedded(const struct lowering *L, const struct model_linear *up, const struct tile *t, struct value *y,
                                   float scale)
{
    return (struct linear_call){up, .rows = t->row1 - t->row0, .y = {y, t->row0, L->s.key.dtype},
                                .scale = (scale != 0.0f ? scale : 1.0f) * L->m->embedding.adapter_scale};
}

void adapter_embed(struct lowering *L, struct value *x, int c, float scale)
{
    if (L->m->embedding.rank == 0)
        return;
    const struct model_linear up = up_map(&L->m->embedding);
    struct linear_call call = embedded(L, &up, &x->tiles[c], x, scale);
    call.x = find_tokens(L, x->tiles[c].row0, x->tiles[c].row1);
    call.accumulate = 1;
    linear_product(L, &call);
    value_drop(L, call.x.value, c);
}

void adapter_embed_backward(struct lowering *L, int c, float scale)
{
    struct adapter_work *W = L->adapters;
    const struct model_linear *w = &L->m->embedding;
    if (w->rank == 0 || !trained(L, w->up))
        return;
    const struct model_linear up = up_map(w);
    const int64_t r0 = L->dx.tiles[c].row0, r1 = L->dx.tiles[c].row1;
    struct linear_call call = embedded(L, &up, &L->dx.tiles[c], &L->dx, scale);
    call.x = find_tokens(L, r0, r1);
    linear_product_dw(L, &call);
    value_drop(L, call.x.value, c);
    value_new(L, &W->dfound, c);
    call.x = (struct linear_side){&W->dfound, r0, F32, 0};
    linear_product_dx(L, &call);
    struct op_attrs *a = emit_lookup(L, OP_EMBED_GRAD, r1 - r0, F32);
    a->embed.accumulate = arg_grad(L, 0, w->down, 0, param_of(L, w->down)->elements);
    arg_read(L, 1, &W->dfound, r0, r1, DEV);
    arg_read(L, 2, &L->tokens, r0, r1, DEV);
    emit_done(L, 0);
    value_drop(L, &W->dfound, c);
}

void lower_linear(struct lowering *L, const struct linear_call *c)
{
    linear_product(L, c);
    adapter_forward(L, c);
}

void lower_linear_dx(struct lowering *L, const struct linear_call *c)
{
    linear_product_dx(L, c);
    adapter_dx(L, c);
}

void lower_linear_dw(struct lowering *L, const struct linear_call *c)
{
    linear_product_dw(L, c);
    adapter_dw(L, c);
}

/* Appends the cuts of an adapter's gradients: slices of outputs write only B's gradient in parts, slices of inputs only A's. */
static int adapter_cuts(const struct lowering *L, const struct model_linear *w, int parts, enum linear_slices slices,
                        int64_t *cuts, int n, int max)
{
    const struct model_param *p = param_of(L, slices == OF_INPUTS ? w->down : w->up);
    int64_t step = slices == OF_INPUTS ? w->in / parts : w->out / parts * w->rank,
            first = slices == OF_INPUTS ? 0 : w->first_out * w->rank;
    for (int i = 0; i < parts && n + 1 <= max; i++)
        cuts[n++] = p->offset + first + i * step;
    return n;
}

int linear_cuts(const struct lowering *L, const struct model_linear *w, int parts, enum linear_slices slices, int64_t *cuts,
                int n, int max)
{
    const struct model_param *p = param_of(L, w->weight);
    if (w->rank > 0)
        n = adapter_cuts(L, w, parts, slices, cuts, n, max);
    for (int i = 0; i < parts && n + 2 <= max; i++) {
        struct model_linear s = slices == OF_INPUTS ? *w : linear_outputs(w, i * (w->out / parts), w->out / parts);
        int64_t in = slices == OF_INPUTS ? w->in / parts : w->in;
        cuts[n++] = p->offset + linear_begins(&s, slices == OF_INPUTS ? i * in : 0);
        if (w->bias >= 0 && slices == OF_OUTPUTS)
            cuts[n++] = param_of(L, w->bias)->offset + s.first_out;
    }
    return n;
}
