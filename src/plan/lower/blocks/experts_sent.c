/* Experts that ranks share out: each pair's row travels to the rank that has its expert, and the result back.
 *
 * Every rank has room for the most rows that can arrive: all pairs of all members' tokens that may choose its experts. So no token is
 * dropped, whatever the router does. */
#include "plan/lower/blocks/experts.h"

#include "plan/lower/blocks/expert_op.h"
#include "plan/lower/blocks/narrow.h"

#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/param.h"
#include "plan/lower/update.h"
#include "plan/lower/value.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static struct sent_work *work_of(const struct lowering *L)
{
    return &experts_work_of(L)->sent;
}

static int has_biases(const struct block *b)
{
    return experts_weights(b)->down.bias >= 0;
}

void sent_values(struct lowering *L, const struct block *b)
{
    const struct model_config *c = &L->m->config;
    const enum dtype T = L->s.key.dtype;
    struct sent_work *W = work_of(L);
    const int64_t most = experts_room(L), k = c->experts_used, dim = model_expert_dim(c);
    const struct {
        struct value *v;
        const char *name;
        int64_t columns;
        enum dtype type;
    } all[] = {{&W->sent, "sent", k * dim, T},
               {&W->sent_p, "sent.p", k, F32},
               {&W->x, "arrived.x", most * dim, T},
               {&W->dy, "arrived.dy", most * dim, T},
               {&W->p, "arrived.p", most, F32},
               {&W->order, "arrived.order", most, I32},
               {&W->place, "arrived.place", most, I32},
               {&W->gate_up, "arrived.gate_up", most * model_expert_columns(c), T},
               {&W->act, "arrived.act", most * c->expert_ffn, T},
               {&W->dact, "arrived.dact", most * c->expert_ffn, T},
               {&W->y, "arrived.y", most * dim, T},
               {&W->dp, "arrived.dp", most, F32},
               {&W->back, "back", most * dim, T},
               {&W->back_dp, "back.dp", most, F32}};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        experts_value(L, all[i].v, all[i].name, all[i].columns, all[i].type);
    if (has_biases(b))
        experts_value(L, &W->ids, "arrived.ids", most, I32);
    value_create(L, &W->all, "all.offsets", CLASS_WORK, L->n_chunks * L->ep, (c->experts + 1) * dtype_size(I32), L->ep, RES_NONE);
    value_create(L, &W->offsets, "arrived.offsets", CLASS_WORK, L->n_chunks, (c->experts / L->ep + 1) * dtype_size(I32), 1,
                 RES_NONE);
}

/* --- Sending --- */

static void read_all(struct lowering *L, int arg, int c)
{
    arg_read(L, arg, &work_of(L)->all, c * L->ep, (c + 1) * L->ep, DEV);
}

/* Exchanges the numbers of rows that each rank sends to each expert, and sorts the rows that arrive here by expert. */
static void exchange_counts(struct lowering *L, const struct block *b, int c)
{
    struct sent_work *W = work_of(L);
    const struct expert_rows r = experts_rows_of(b, c);
    gather_group(L, &W->all, &experts_work_of(L)->offsets, (struct group){c * L->ep, (c + 1) * L->ep, c, c + 1, LANE_EP}, 0);
    struct op_attrs *a = emit(L, OP_ARRIVE, LANE_COMPUTE);
    a->arrive.rows = r.n * experts_room(L);
    a->arrive.experts = (int32_t)L->m->config.experts;
    a->arrive.members = L->ep;
    a->arrive.group = lane_in_record(LANE_EP);
    experts_write(L, 0, &W->order, &r, c);
    experts_write(L, 1, &W->place, &r, c);
    value_new(L, &W->offsets, c);
    arg_write(L, 2, &W->offsets, c, c + 1, DEV);
    read_all(L, 3, c);
    arg_read(L, 4, &L->record, 0, 1, DEV);
    if (has_biases(b))
        experts_write(L, 5, &W->ids, &r, c);
    emit_done(L, 0);
}

/* Rows with `columns` elements of one type. */
struct columns_of {
    int64_t columns;
    enum dtype type;
};

static struct columns_of stream_columns(const struct lowering *L)
{
    return (struct columns_of){model_expert_dim(&L->m->config), L->s.key.dtype};
}

/* Copies rows of x to y, one for each of `rows` indices. per: indices of a row of x. */
static void spread(struct lowering *L, struct value *y, struct value *x, struct value *index, const struct block *b, int c,
                   struct columns_of of, int64_t rows, int64_t per)
{
    const struct expert_rows r = experts_rows_of(b, c);
    struct op_attrs *a = emit(L, OP_SPREAD, LANE_COMPUTE);
    a->spread.rows = rows;
    a->spread.x_rows = rows / per;
    a->spread.cols = of.columns;
    a->spread.per = (int32_t)per;
    a->spread.dtype = (int32_t)of.type;
    a->spread.padded = index == &work_of(L)->place ? experts_padding(L) : 0;
    experts_write(L, 0, y, &r, c);
    experts_read(L, 1, x, &r);
    experts_read(L, 2, index, &r);
    emit_done(L, 0);
}

/* Sends rows of pairs to the ranks with their experts, or (OP_RETURN) results back. */
static void travel(struct lowering *L, enum op_kind op, struct value *to, struct value *from, const struct block *b, int c,
                   struct columns_of of)
{
    const struct expert_rows r = experts_rows_of(b, c);
    value_new(L, to, c);
    struct op_attrs *a = emit(L, op, LANE_EP);
    a->comm.n = r.n * experts_room(L);
    a->comm.share = r.n * L->m->config.experts_used;
    a->comm.element = (int32_t)(of.columns * dtype_size(of.type));
    a->comm.type = (int32_t)L->m->config.experts;
    experts_read(L, 0, from, &r);
    arg_write(L, 1, to, r.first, r.end, DEV);
    read_all(L, 2, c);
    emit_done(L, 0);
}

/* Sends the row of each pair, or (per 1) its number. */
static void send(struct lowering *L, struct value *to, struct value *from, struct value *way, const struct block *b, int c,
                 struct columns_of of, int64_t per)
{
    const struct expert_rows r = experts_rows_of(b, c);
    spread(L, way, from, &experts_work_of(L)->order, b, c, of, r.n * L->m->config.experts_used, per);
    travel(L, OP_DISPATCH, to, way, b, c, of);
    value_drop(L, way, c);
}

/* Sends each sorted row back to the rank whose pair it belongs to. */
static void send_back(struct lowering *L, struct value *to, struct value *from, struct value *way, const struct block *b, int c,
                      struct columns_of of)
{
    const struct expert_rows r = experts_rows_of(b, c);
    spread(L, way, from, &work_of(L)->place, b, c, of, r.n * experts_room(L), 1);
    value_drop(L, from, c);
    travel(L, OP_RETURN, to, way, b, c, of);
    value_drop(L, way, c);
}

void sent_fetch(struct lowering *L, const struct block *b, int c)
{
    struct sent_work *W = work_of(L);
    struct experts_layer *x = b->values;
    if (value_on_device(&W->x, c))
        return;
    exchange_counts(L, b, c);
    experts_make_input(L, b, c);
    send(L, &W->x, experts_input(L, b), &W->sent, b, c, stream_columns(L), L->m->config.experts_used);
    send(L, &W->p, &x->p, &W->sent_p, b, c, (struct columns_of){1, F32}, 1);
}

/* --- Products of arrived rows --- */

static struct op_attrs *emit_gated(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    struct op_attrs *a = experts_gated(L, b, op, rows * experts_room(L));
    a->gated.k = 1;
    a->gated.experts = (int32_t)(L->m->config.experts / L->ep);
    a->gated.padded = experts_padding(L);
    return a;
}

/* Adds the expert's bias times the pair's weight to each row of y: a product with a matrix of one column. */
static void add_biases(struct lowering *L, const struct block *b, int c)
{
    const struct model_linear *down = &experts_weights(b)->down;
    const struct model_linear column = {.weight = down->bias, .bias = -1, .transposed = 1, .in = 1, .out = down->out, .ld = 1};
    const struct expert_rows r = experts_rows_of(b, c);
    struct op_attrs *a = experts_emit_here(L, b, OP_EXPERTS, &column, r.n);
    a->experts.x_type = F32;
    a->experts.result = GEMM_ADDS;
    arg_update(L, 0, &work_of(L)->y, r.first, r.end, DEV);
    experts_read(L, 1, &work_of(L)->p, &r);
    arg_param(L, 2, down->bias);
    arg_read(L, 3, experts_offsets(L), c, c + 1, DEV);
    experts_read(L, 4, experts_order(L), &r);
    emit_done(L, 0);
}

/* Computes the first maps' outputs of the rows that arrived. */
static void make_gate_up(struct lowering *L, const struct block *b, int c)
{
    struct sent_work *W = work_of(L);
    const struct model_linear *w = &experts_weights(b)->gate_up;
    const struct stack_adapter adapter = experts_adapter(L, b, w, c);
    experts_multiply(L, b, &(struct experts_product){w, &W->gate_up, &W->x, 1}, c);
    stack_adapter_forward(L, &adapter, &W->gate_up, &W->x, 1);
}

void sent_branch(struct lowering *L, const struct block *b, int c, int accumulate)
{
    struct sent_work *W = work_of(L);
    const struct experts_block *e = experts_weights(b);
    const struct expert_rows r = experts_rows_of(b, c);
    const struct stack_adapter adapter = experts_adapter(L, b, &e->down, c);
    make_gate_up(L, b, c);
    emit_gated(L, b, OP_GATED, r.n);
    experts_write(L, 0, &W->act, &r, c);
    experts_read(L, 1, &W->gate_up, &r);
    experts_read(L, 2, &W->p, &r);
    experts_read(L, 3, &W->place, &r);
    emit_done(L, 0);
    value_drop(L, &W->gate_up, c);
    experts_multiply_without_bias(L, b, &(struct experts_product){&e->down, &W->y, &W->act, 0}, c);
    stack_adapter_forward(L, &adapter, &W->y, &W->act, 0);
    if (has_biases(b))
        add_biases(L, b, c);
    value_drop(L, &W->act, c);
    send_back(L, &experts_work_of(L)->y, &W->y, &W->back, b, c, stream_columns(L));
    experts_combine(L, b, c, accumulate, 0);
}

/* Turns gate_up into its gradient, and dact, the gradient of act, into act; makes dp. */
static void gated_backward(struct lowering *L, const struct block *b, int c)
{
    struct sent_work *W = work_of(L);
    const struct expert_rows r = experts_rows_of(b, c);
    emit_gated(L, b, OP_GATED_GRAD, r.n);
    arg_update(L, 0, &W->gate_up, r.first, r.end, DEV);
    arg_update(L, 1, &W->dact, r.first, r.end, DEV);
    experts_write(L, 2, &W->dp, &r, c);
    experts_read(L, 3, &W->p, &r);
    experts_read(L, 4, &W->place, &r);
    if (has_biases(b)) {
        experts_read(L, 5, &W->dy, &r);
        arg_param(L, 6, experts_weights(b)->down.bias);
        experts_read(L, 7, &W->ids, &r);
    }
    emit_done(L, 0);
}

void sent_gradient(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate)
{
    struct sent_work *W = work_of(L);
    const struct experts_block *e = experts_weights(b);
    const struct stack_adapter down = experts_adapter(L, b, &e->down, c), gate_up = experts_adapter(L, b, &e->gate_up, c);
    send(L, &W->dy, df, &W->sent, b, c, stream_columns(L), L->m->config.experts_used);
    make_gate_up(L, b, c);
    experts_multiply_back(L, b, &(struct experts_product){&e->down, &W->dact, &W->dy, 1}, c);
    stack_adapter_begin(L, &down, &W->dy, 1);
    stack_adapter_dx(L, &down, &W->dact);
    gated_backward(L, b, c);
    send_back(L, &experts_work_of(L)->dp, &W->dp, &W->back_dp, b, c, (struct columns_of){1, F32});
    stack_adapter_dw(L, &down, &W->dy, &W->dact, GATHERS_DY);
    stack_adapter_end(L, &down);
    experts_multiply_back(L, b, &(struct experts_product){&e->gate_up, &W->y, &W->gate_up, 0}, c);
    stack_adapter_begin(L, &gate_up, &W->gate_up, 0);
    stack_adapter_dx(L, &gate_up, &W->y);
    send_back(L, &experts_work_of(L)->y, &W->y, &W->back, b, c, stream_columns(L));
    experts_gradient(L, b, &e->down, &W->dy, &W->dact, GATHERS_DY, c);
    experts_gradient(L, b, &e->gate_up, &W->gate_up, &W->x, GATHERS_X, c);
    stack_adapter_dw(L, &gate_up, &W->gate_up, &W->x, GATHERS_X);
    stack_adapter_end(L, &gate_up);
    value_drop(L, &W->dy, c);
    value_drop(L, &W->dact, c);
    value_drop(L, &W->gate_up, c);
    experts_combine(L, b, c, accumulate, 0);
}

void sent_drop(struct lowering *L, int c)
{
    struct sent_work *W = work_of(L);
    struct value *all[] = {&W->all, &W->x, &W->p, &W->order, &W->place, &W->offsets};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        value_drop(L, all[i], c);
    if (W->ids.n_tiles > 0)
        value_drop(L, &W->ids, c);
}
