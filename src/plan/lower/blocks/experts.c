/* Experts: MLPs of which each token gets a few, chosen and weighed by a router. */
#include "plan/lower/blocks/experts.h"

#include "plan/lower/blocks/expert_op.h"
#include "plan/lower/blocks/narrow.h"
#include "plan/lower/blocks/rows.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/linear.h"
#include "plan/lower/load.h"
#include "plan/lower/param.h"
#include "plan/lower/pieces.h"
#include "plan/lower/slots.h"
#include "plan/lower/value.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

static void read_offsets(struct lowering *L, int arg, int c)
{
    arg_read(L, arg, &experts_work_of(L)->offsets, c, c + 1, DEV);
}

/* --- The router --- */

static int has_own_norm(const struct block *b)
{
    return experts_weights(b)->router_norm.kind != NORM_NONE;
}

/* Tells whether the router reads values of its own: a norm that experts do not read, or numbers in fp32 in bf16 runs. */
static int has_own_input(const struct lowering *L, const struct block *b)
{
    return has_own_norm(b) || L->s.key.dtype != F32;
}

/* Returns the router's product, which is in fp32 in bf16 runs, too. */
static struct linear_call router_call(const struct lowering *L, const struct block *b, const struct expert_rows *r)
{
    struct value *x = has_own_input(L, b) ? &experts_work_of(L)->input : b->normed;
    return (struct linear_call){&experts_weights(b)->router, .rows = r->n, .y = {&experts_work_of(L)->logits, r->first, F32},
                                .x = {x, r->first, F32}};
}

/* Computes the router's input, if that is a value of its own. */
static void compute_input(struct lowering *L, const struct block *b, const struct expert_rows *r, int c)
{
    struct value *normed = b->normed;
    if (has_own_norm(b)) {
        normed = &L->f_normed;
        value_get(L, b->source, c);
        lower_norm_forward(L, &experts_weights(b)->router_norm, normed, b->source, c);
    } else {
        block_norm(L, b, c);
    }
    if (!has_own_input(L, b))
        return;
    value_new(L, &experts_work_of(L)->input, c);
    lower_cast_rows(L, &experts_work_of(L)->input, r->first, F32, normed, r->first, L->s.key.dtype, r->n);
    if (has_own_norm(b))
        value_drop(L, normed, c);
}

static void compute_logits(struct lowering *L, const struct block *b, int c)
{
    const struct expert_rows r = experts_rows_of(b, c);
    const struct linear_call call = router_call(L, b, &r);
    compute_input(L, b, &r, c);
    value_new(L, &experts_work_of(L)->logits, c);
    lower_linear(L, &call);
    lower_bias_of(L, call.w, &call.y, r.n);
}

static void drop_logits(struct lowering *L, const struct block *b, int c)
{
    value_drop(L, &experts_work_of(L)->logits, c);
    if (has_own_input(L, b))
        value_drop(L, &experts_work_of(L)->input, c);
}

static struct op_attrs *emit_route(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    static const enum route_kind kinds[] = {
        [ROUTER_SOFTMAX] = ROUTE_SOFTMAX, [ROUTER_TOP] = ROUTE_CHOSEN, [ROUTER_SIGMOID] = ROUTE_SIGMOID};
    const struct experts_block *e = experts_weights(b);
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->route.rows = rows;
    a->route.experts = (int32_t)e->experts;
    a->route.k = (int32_t)e->used;
    a->route.kind = (int32_t)kinds[e->kind];
    a->route.normalise = e->normalises;
    a->route.groups = e->groups > 1 ? (int32_t)e->groups : 0;
    a->route.group_k = e->groups > 1 ? (int32_t)e->groups_used : 0;
    a->route.ranked = e->groups > 1 && e->ranked == 1 ? 1 : 0;
    a->route.scale = e->scale;
    a->route.eps = e->added;
    a->route.least = e->floor;
    a->route.logit_factor = e->router_factor;
    return a;
}

/* Chooses the experts of a chunk, and weighs them. v: ids or p; both are computed. */
static void produce_choice(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    struct experts_layer *x = b->values;
    const struct expert_rows r = experts_rows_of(b, c);
    compute_logits(L, b, c);
    struct op_attrs *a = emit_route(L, b, OP_ROUTE, r.n);
    experts_write(L, 0, &x->ids, &r, c);
    experts_write(L, 1, &x->p, &r, c);
    load_count(L, a, b->layer, r.first, r.end);
    experts_read(L, 5, &experts_work_of(L)->logits, &r);
    if (experts_weights(b)->router_bias >= 0)
        arg_param(L, 6, experts_weights(b)->router_bias);
    if (experts_weights(b)->factors >= 0)
        arg_param(L, 8, experts_weights(b)->factors);
    emit_done(L, 0);
    drop_logits(L, b, c);
    value_put(L, v == &x->ids ? &x->p : &x->ids, c);
}

/* Adds up the gradients of the weights' factors, which stand in pairs' rows, expert by expert. */
static void sum_factor_gradients(struct lowering *L, const struct block *b, const struct expert_rows *r, int c)
{
    struct experts_work *W = experts_work_of(L);
    const struct experts_block *e = experts_weights(b);
    struct op_attrs *a = experts_emit(L, b, OP_EXPERTS_GRAD, &(struct model_linear){.in = 1, .out = 1, .transposed = 1}, r->n);
    a->experts.x_type = a->experts.w_type = a->experts.y_type = F32;
    a->experts.gathers = GATHERS_X;
    experts_read(L, 1, &W->dfactor, r);
    experts_read(L, 2, &W->dfactor, r);
    read_offsets(L, 3, c);
    a->experts.result = arg_grad(L, 5, e->factors, 0, e->experts) ? GEMM_ADDS : GEMM_WRITES;
    emit_done(L, 0);
    value_drop(L, &W->dfactor, c);
}

/* Replaces the logits by their gradient, and computes the gradients of the weights' factors. */
static void route_backward(struct lowering *L, const struct block *b, const struct expert_rows *r, int c)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const int factors = experts_weights(b)->factors;
    struct op_attrs *a = emit_route(L, b, OP_ROUTE_GRAD, r->n);
    arg_update(L, 0, &W->logits, r->first, r->end, DEV);
    experts_read(L, 1, &x->ids, r);
    experts_read(L, 2, &x->p, r);
    experts_read(L, 3, &W->dp, r);
    experts_read(L, 4, &W->place, r);
    load_balance(L, a, r->first, r->end);
    if (factors >= 0)
        arg_param(L, 7, factors);
    if (trained(L, factors))
        experts_write(L, 8, &W->dfactor, r, c);
    emit_done(L, 0);
    if (trained(L, factors))
        sum_factor_gradients(L, b, r, c);
}

/* Computes the gradients of the router's parameters from p's gradient, and adds the input's gradient to b->acc or, if the router has a
 * norm of its own, the stream's gradient to L->dx. */
static void router_backward(struct lowering *L, const struct block *b, int c)
{
    struct experts_work *W = experts_work_of(L);
    const struct expert_rows r = experts_rows_of(b, c);
    struct linear_call call = router_call(L, b, &r);
    compute_logits(L, b, c);
    route_backward(L, b, &r, c);
    lower_linear_dw(L, &call);
    lower_bias_grad_of(L, call.w, &call.y, r.n);
    if (has_own_norm(b)) {
        call.accumulate = 0; /* the gradient takes the input's place */
        lower_linear_dx(L, &call);
        lower_norm_backward(L, &experts_weights(b)->router_norm, b->source, &W->input, c);
    } else {
        call.x = (struct linear_side){b->acc, r.first, F32};
        call.accumulate = 1;
        lower_linear_dx(L, &call);
    }
    drop_logits(L, b, c);
    value_drop(L, &W->dp, c);
}

/* --- Pairs --- */

/* Sorts the chunk's pairs by expert, or by the slots that have the experts. */
static void sort_pairs(struct lowering *L, const struct block *b, int c)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const struct expert_rows r = experts_rows_of(b, c);
    const int unit = param_of(L, experts_weights(b)->down.weight)->unit;
    if (value_on_device(&W->order, c))
        return;
    value_get(L, &x->ids, c);
    struct value *by = &x->ids;
    if (slots_serve(L, unit)) {
        slots_fill(L, unit, &x->ids, &W->slots, c);
        by = &W->slots;
    }
    emit_route(L, b, OP_PERMUTE, r.n)->route.experts = slots_experts(L, unit, experts_weights(b)->experts);
    experts_write(L, 0, &W->order, &r, c);
    experts_write(L, 1, &W->place, &r, c);
    value_new(L, &W->offsets, c);
    arg_write(L, 2, &W->offsets, c, c + 1, DEV);
    experts_read(L, 3, by, &r);
    emit_done(L, 0);
}

/* --- Forward --- */

static void produce_gate_up(struct lowering *L, struct value *v, int c)
{
    const struct block *b = v->block;
    const struct stack_adapter adapter = experts_adapter(L, b, &experts_weights(b)->gate_up, c);
    struct value *input = experts_input(L, b);
    sort_pairs(L, b, c);
    experts_make_input(L, b, c);
    experts_multiply(L, b, &(struct experts_product){&experts_weights(b)->gate_up, v, input, 1}, c);
    stack_adapter_forward(L, &adapter, v, input, 1);
}

static void fetch(struct lowering *L, const struct block *b, int c)
{
    struct experts_layer *x = b->values;
    value_get(L, &x->ids, c);
    value_get(L, &x->p, c);
    sort_pairs(L, b, c);
    if (L->ep > 1)
        sent_fetch(L, b, c);
    else
        value_get(L, &x->gate_up, c);
    if (narrow_is(b))
        value_get(L, &x->sum, c);
}

/* Computes the sum of what a token's experts give, from everything that `fetch` gets. */
static void add_up(struct lowering *L, const struct block *b, int c, int accumulate)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const struct expert_rows r = experts_rows_of(b, c);
    const struct stack_adapter adapter = experts_adapter(L, b, &experts_weights(b)->down, c);
    if (L->ep > 1) {
        sent_branch(L, b, c, accumulate);
        return;
    }
    experts_gated(L, b, OP_GATED, r.n);
    experts_write(L, 0, &W->act, &r, c);
    experts_read(L, 1, &x->gate_up, &r);
    experts_read(L, 2, &x->p, &r);
    experts_read(L, 3, &W->place, &r);
    emit_done(L, 0);
    experts_multiply_without_bias(L, b, &(struct experts_product){&experts_weights(b)->down, &W->y, &W->act, 0}, c);
    stack_adapter_forward(L, &adapter, &W->y, &W->act, 0);
    value_drop(L, &W->act, c);
    experts_combine(L, b, c, accumulate, experts_weights(b)->down.bias >= 0);
}

static void produce_sum(struct lowering *L, struct value *v, int c)
{
    add_up(L, v->block, c, 0);
    narrow_keep_sum(L, v, c);
}

static void branch(struct lowering *L, const struct block *b, int c, int accumulate)
{
    (narrow_is(b) ? narrow_branch : add_up)(L, b, c, accumulate);
}

/* --- Backward --- */

/* Turns gate_up into its gradient, and dact, the gradient of act, into act; makes dp. */
static void gated_backward(struct lowering *L, const struct block *b, struct value *df, int c)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const struct expert_rows r = experts_rows_of(b, c);
    experts_gated(L, b, OP_GATED_GRAD, r.n);
    arg_update(L, 0, &x->gate_up, r.first, r.end, DEV);
    arg_update(L, 1, &W->dact, r.first, r.end, DEV);
    experts_write(L, 2, &W->dp, &r, c);
    experts_read(L, 3, &x->p, &r);
    experts_read(L, 4, &W->place, &r);
    if (experts_weights(b)->down.bias >= 0) {
        experts_read(L, 5, df, &r);
        arg_param(L, 6, experts_weights(b)->down.bias);
        experts_read(L, 7, &x->ids, &r);
    }
    emit_done(L, 0);
}

/* Computes the gradients of experts if this rank has all of them. */
static void own_gradient(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    const struct experts_block *e = experts_weights(b);
    const struct stack_adapter down = experts_adapter(L, b, &e->down, c), gate_up = experts_adapter(L, b, &e->gate_up, c);
    struct value *input = experts_input(L, b);
    experts_multiply_back(L, b, &(struct experts_product){&e->down, &W->dact, df, 1}, c);
    stack_adapter_begin(L, &down, df, 1);
    stack_adapter_dx(L, &down, &W->dact);
    gated_backward(L, b, df, c);
    experts_gradient(L, b, &e->down, df, &W->dact, GATHERS_DY, c);
    stack_adapter_dw(L, &down, df, &W->dact, GATHERS_DY);
    stack_adapter_end(L, &down);
    value_drop(L, &W->dact, c);
    experts_make_input(L, b, c);
    experts_gradient(L, b, &e->gate_up, &x->gate_up, input, GATHERS_X, c);
    experts_multiply_back(L, b, &(struct experts_product){&e->gate_up, &W->y, &x->gate_up, 0}, c);
    stack_adapter_begin(L, &gate_up, &x->gate_up, 0);
    stack_adapter_dw(L, &gate_up, &x->gate_up, input, GATHERS_X);
    stack_adapter_dx(L, &gate_up, &W->y);
    stack_adapter_end(L, &gate_up);
    experts_combine(L, b, c, accumulate, 0);
}

static void gradient(struct lowering *L, const struct block *b, struct value *df, int c, int accumulate)
{
    const int narrow = narrow_is(b);
    struct value *dsum = narrow ? narrow_begin_gradient(L, b, df, c) : df;
    (L->ep > 1 ? sent_gradient : own_gradient)(L, b, dsum, c, !narrow && accumulate);
    if (narrow)
        narrow_end_gradient(L, b, c, accumulate);
    router_backward(L, b, c);
}

static void drop(struct lowering *L, const struct block *b, int c)
{
    struct experts_work *W = experts_work_of(L);
    struct experts_layer *x = b->values;
    struct value *all[] = {&x->ids, &x->p, &x->gate_up, &x->sum, &W->order, &W->place, &W->offsets, &W->slots, &W->narrow.input};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        if (all[i]->n_tiles > 0)
            value_drop(L, all[i], c);
    if (L->ep > 1)
        sent_drop(L, c);
}

/* Returns NULL, no map, since the second maps' biases are added pair by pair. */
static const struct model_linear *last(const struct block *b)
{
    (void)b;
    return NULL;
}

/* --- Creation --- */

static void layer_values(struct lowering *L, struct block *b)
{
    struct experts_layer *x = b->values = memory_new(L, 1, sizeof *x);
    const struct experts_block *e = experts_weights(b);
    if (!x)
        return;
    activation_of_layer(L, b, -1, &(struct activation){&x->ids, "ids", e->used, I32, STREAM, produce_choice, .kept = KEPT_ALL});
    activation_of_layer(L, b, -1, &(struct activation){&x->p, "p", e->used, F32, STREAM, produce_choice, .kept = KEPT_ALL});
    if (narrow_is(b))
        activation_of_layer(L, b, -1,
                            &(struct activation){&x->sum, "experts.sum", L->m->config.expert_dim, L->s.key.dtype, STREAM,
                                                 produce_sum, .kept = KEPT_ALL});
    if (L->ep == 1) /* rows that arrived from other ranks are not kept */
        activation_of_layer(
            L, b, -1,
            &(struct activation){&x->gate_up, "gate_up", e->used * e->gate_up.out, L->s.key.dtype, STREAM, produce_gate_up});
}

/* Returns the first layer's block of experts. */
static const struct block *first_block(const struct lowering *L)
{
    const struct block *b = L->layers[0].blocks;
    for (int l = 0, i = 0; b->weights->kind != BLOCK_EXPERTS; b = &L->layers[l].blocks[i])
        if (++i >= L->layers[l].n_blocks)
            l++, i = 0;
    return b;
}

/* Creates the values that all layers share; experts are alike in all layers of a model. */
static void chunk_values(struct lowering *L)
{
    struct experts_work *W = L->shared[BLOCK_EXPERTS] = memory_new(L, 1, sizeof *W);
    const struct model_config *c = &L->m->config;
    const enum dtype T = L->s.key.dtype;
    const struct block *b = first_block(L);
    if (!W)
        return;
    if (narrow_is(b))
        narrow_values(L);
    if (has_own_input(L, b))
        experts_value(L, &W->input, "input.router", c->dim, F32);
    if (trained(L, experts_weights(b)->factors))
        experts_value(L, &W->dfactor, "dfactor", c->experts_used, F32);
    experts_value(L, &W->logits, "logits.router", c->experts, F32);
    experts_value(L, &W->order, "order", c->experts_used, I32);
    experts_value(L, &W->place, "place", c->experts_used, I32);
    value_create(L, &W->offsets, "offsets", CLASS_WORK, L->n_chunks, (c->experts + 1) * dtype_size(I32), 1, RES_NONE);
    if (L->s.expert_slots > 0)
        experts_value(L, &W->slots, "slots", c->experts_used, I32);
    if (L->ep > 1) {
        sent_values(L, b);
    } else {
        experts_value(L, &W->act, "act.pairs", c->experts_used * c->expert_ffn, T);
        experts_value(L, &W->dact, "dact.pairs", c->experts_used * c->expert_ffn, T);
    }
    experts_value(L, &W->y, "y.pairs", c->experts_used * model_expert_dim(c), T);
    experts_value(L, &W->dp, "dp", c->experts_used, F32);
    stack_adapter_values(L, &W->adapter);
}

static const struct row_block functions = {.fetch = fetch, .branch = branch, .gradient = gradient, .drop = drop, .last = last};
const struct block_lowering experts_lowering = {.layer_values = layer_values,
                                                .chunk_values = chunk_values,
                                                .rows = &functions,
                                                .produce = rows_output,
                                                .backward = rows_backward};
