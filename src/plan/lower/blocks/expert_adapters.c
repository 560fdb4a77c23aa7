#include "plan/lower/blocks/expert_adapters.h"

#include "plan/lower/activation.h"
#include "plan/lower/blocks/expert_op.h"
#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/slots.h"
#include "plan/lower/value.h"

#define DEV TIER_DEVICE

static void work_value(struct lowering *L, struct value *v, const char *name)
{
    const int64_t columns = experts_room(L) * L->m->most_stack_rank;
    activation_of_work(L, RES_NONE, -1, &(struct activation){v, name, columns, F32, STREAM});
}

void stack_adapter_values(struct lowering *L, struct stack_work *W)
{
    if (L->m->most_stack_rank == 0)
        return;
    work_value(L, &W->down, "adapter.pairs.down");
    work_value(L, &W->scaled_down, "adapter.pairs.scaled_down");
    work_value(L, &W->up, "adapter.pairs.up");
    work_value(L, &W->scaled_up, "adapter.pairs.scaled_up");
}

/* A matrix of a product: the chunk's rows of a value, and their type. */
struct side {
    struct value *value;
    enum dtype type;
};

static const struct tile *tile_of(const struct stack_adapter *a)
{
    return &a->block->in->tiles[a->chunk];
}

static void read_side(struct lowering *L, int arg, const struct stack_adapter *a, struct value *v)
{
    arg_read(L, arg, v, tile_of(a)->row0, tile_of(a)->row1, DEV);
}

static struct model_linear down_map(const struct model_linear *w)
{
    return (struct model_linear){.weight = w->down, .bias = -1, .transposed = 1, .in = w->in, .out = w->rank, .ld = w->in};
}

static struct model_linear up_map(const struct model_linear *w)
{
    return (struct model_linear){.weight = w->up, .bias = -1, .transposed = 1, .in = w->rank, .out = w->out, .ld = w->rank};
}

/* Returns the transpose of a map: from its outputs to its inputs. */
static struct model_linear backwards(struct model_linear w)
{
    const int64_t in = w.in;
    w.in = w.out;
    w.out = in;
    w.transposed = !w.transposed;
    return w;
}

/* Computes y (+)= x times one of the adapter's stacks. gathered: 1: x has a row for each token. */
static void multiply(struct lowering *L, const struct stack_adapter *a, struct model_linear w, struct side y, struct side x,
                     int gathered, int adds)
{
    const struct tile *t = tile_of(a);
    struct op_attrs *attrs = experts_emit_here(L, a->block, OP_EXPERTS, &w, t->row1 - t->row0);
    attrs->experts.x_type = (int32_t)x.type;
    attrs->experts.y_type = (int32_t)y.type;
    attrs->experts.result = adds ? GEMM_ADDS : GEMM_WRITES;
    if (!adds)
        value_new(L, y.value, a->chunk);
    (adds ? arg_update : arg_write)(L, 0, y.value, t->row0, t->row1, DEV);
    read_side(L, 1, a, x.value);
    arg_experts(L, 2, w.weight, 0, attrs->experts.count);
    arg_read(L, 3, a->offsets, a->chunk, a->chunk + 1, DEV);
    if (gathered)
        read_side(L, 4, a, a->order);
    emit_done(L, 0);
}

/* Computes to = s from, for all of the chunk's pairs. */
static void scale(struct lowering *L, const struct stack_adapter *a, struct value *to, struct value *from)
{
    const struct tile *t = tile_of(a);
    struct op_attrs *attrs = emit(L, OP_CAST, LANE_COMPUTE);
    attrs->cast.n = (t->row1 - t->row0) * experts_room(L) * a->w->rank;
    attrs->cast.y_type = attrs->cast.x_type = F32;
    attrs->cast.scale = a->w->adapter_scale;
    value_new(L, to, a->chunk);
    arg_write(L, 0, to, t->row0, t->row1, DEV);
    read_side(L, 1, a, from);
    emit_done(L, 0);
    value_drop(L, from, a->chunk);
}

/* Computes s A x for the chunk's pairs. */
static void make_down(struct lowering *L, const struct stack_adapter *a, struct value *x, int gathered)
{
    struct stack_work *W = a->work;
    multiply(L, a, down_map(a->w), (struct side){&W->down, F32}, (struct side){x, L->s.key.dtype}, gathered, 0);
    scale(L, a, &W->scaled_down, &W->down);
}

void stack_adapter_forward(struct lowering *L, const struct stack_adapter *a, struct value *y, struct value *x, int gathered)
{
    if (a->w->rank == 0)
        return;
    make_down(L, a, x, gathered);
    multiply(L, a, up_map(a->w), (struct side){y, L->s.key.dtype}, (struct side){&a->work->scaled_down, F32}, 0, 1);
    value_drop(L, &a->work->scaled_down, a->chunk);
}

void stack_adapter_begin(struct lowering *L, const struct stack_adapter *a, struct value *dy, int gathered)
{
    struct stack_work *W = a->work;
    if (a->w->rank == 0)
        return;
    multiply(L, a, backwards(up_map(a->w)), (struct side){&W->up, F32}, (struct side){dy, L->s.key.dtype}, gathered, 0);
    scale(L, a, &W->scaled_up, &W->up);
}

void stack_adapter_dx(struct lowering *L, const struct stack_adapter *a, struct value *dx)
{
    if (a->w->rank > 0)
        multiply(L, a, backwards(down_map(a->w)), (struct side){dx, L->s.key.dtype}, (struct side){&a->work->scaled_up, F32}, 0,
                 1);
}

/* Computes the gradient of one of the adapter's stacks. gathers: the gathered side; gathered: 0: there is none. */
static void gradient(struct lowering *L, const struct stack_adapter *a, const struct model_linear *w, struct side dy,
                     struct side x, enum experts_gather gathers, int gathered)
{
    const struct tile *t = tile_of(a);
    struct op_attrs *attrs = experts_emit_here(L, a->block, OP_EXPERTS_GRAD, w, t->row1 - t->row0);
    attrs->experts.x_type = (int32_t)x.type;
    attrs->experts.y_type = (int32_t)dy.type;
    attrs->experts.gathers = (int32_t)gathers;
    attrs->experts.result = arg_grad(L, 0, w->weight, 0, param_of(L, w->weight)->elements) ? GEMM_ADDS : GEMM_WRITES;
    read_side(L, 1, a, dy.value);
    read_side(L, 2, a, x.value);
    arg_read(L, 3, a->offsets, a->chunk, a->chunk + 1, DEV);
    if (gathered)
        read_side(L, 4, a, a->order);
    emit_done(L, 0);
}

void stack_adapter_dw(struct lowering *L, const struct stack_adapter *a, struct value *dy, struct value *x,
                      enum experts_gather gathers)
{
    struct stack_work *W = a->work;
    if (a->w->rank == 0)
        return;
    const struct model_linear down = down_map(a->w), up = up_map(a->w);
    const struct side input = {x, L->s.key.dtype}, output = {dy, L->s.key.dtype};
    if (trained(L, up.weight)) {
        make_down(L, a, x, gathers == GATHERS_X);
        gradient(L, a, &up, output, (struct side){&W->scaled_down, F32}, gathers, gathers == GATHERS_DY);
        value_drop(L, &W->scaled_down, a->chunk);
    }
    if (trained(L, down.weight))
        gradient(L, a, &down, (struct side){&W->scaled_up, F32}, input, gathers, gathers == GATHERS_X);
}

void stack_adapter_end(struct lowering *L, const struct stack_adapter *a)
{
    if (a->w->rank > 0)
        value_drop(L, &a->work->scaled_up, a->chunk);
}
