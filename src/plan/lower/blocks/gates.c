#include "plan/lower/blocks/gates.h"

#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/value.h"
#include "plan/lower/pieces.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

int has_gates(const struct block *b)
{
    return b->weights->attention.gate.weight >= 0;
}

/* --- Creation --- */

static int64_t columns(const struct head_tiles *h)
{
    return h->q * h->dim;
}

void gates_of_layer(struct lowering *L, struct block *b, value_produce *produce)
{
    const struct head_tiles *h = heads_of(L, &b->weights->attention);
    struct attention_layer *a = b->values;
    if (!has_gates(b))
        return;
    a->gate = memory_new(L, h->n_q, sizeof *a->gate);
    for (int t = 0; t < h->n_q && L->st == OK; t++)
        activation_of_layer(L, b, t, &(struct activation){&a->gate[t], "o_gate", columns(h), L->s.key.dtype, ROUTED, produce});
}

static int some_layer_has_gates(const struct model *m, int shape)
{
    for (int64_t l = 0; l < m->config.layers; l++) {
        const struct attention_block *a = model_attention(m, l);
        if (a && a->shape == shape && a->gate.weight >= 0)
            return 1;
    }
    return 0;
}

/* Creates the transients of gates. The gates' gradients are kept until all gradients of the chunk are made, as dq is. */
void gates_of_work(struct lowering *L, struct attention_work *W, int shape)
{
    const struct head_tiles *h = W->heads;
    enum dtype T = L->s.key.dtype;
    char gated[WORK_NAME], dgate[WORK_NAME];
    if (!some_layer_has_gates(L->m, shape))
        return;
    work_name(W, "gated", gated);
    work_name(W, "dgate", dgate);
    activation_of_work(L, RES_NONE, -1, &(struct activation){&W->gated, gated, columns(h), T, CHUNKS});
    W->dgate = memory_new(L, h->n_q, sizeof *W->dgate);
    for (int t = 0; t < h->n_q && L->st == OK; t++)
        activation_of_work(L, L->s.placement.passing, t, &(struct activation){&W->dgate[t], dgate, columns(h), T, ROUTED});
}

/* --- Forward and backward --- */

static struct op_attrs *emit_gate(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows)
{
    struct op_attrs *a = emit(L, op, LANE_COMPUTE);
    a->act.rows = rows;
    a->act.dim = columns(heads_of(L, &b->weights->attention));
    a->act.dtype = (int32_t)L->s.key.dtype;
    a->act.kind = GATE_SIGMOID;
    return a;
}

void gate_forward(struct lowering *L, const struct block *b, int t, int i)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = attention_work(L, &b->weights->attention);
    struct value *o = &a->o[t], *gate = &a->gate[t];
    int64_t r0 = o->tiles[i].row0, r1 = o->tiles[i].row1;
    int c = i % L->n_chunks;
    int64_t x0 = b->normed->tiles[c].row0;
    value_get(L, gate, i);
    value_new(L, &W->gated, c);
    emit_gate(L, b, OP_SWIGLU, r1 - r0);
    arg_write(L, 0, &W->gated, x0, x0 + r1 - r0, DEV);
    arg_read(L, 1, gate, r0, r1, DEV);
    arg_read(L, 2, o, r0, r1, DEV);
    emit_done(L, 0);
    value_drop(L, gate, i);
}

/* Copies a tile that will become a gradient in place. */
static void copy(struct lowering *L, struct value *to, struct value *from, int i)
{
    int64_t r0 = from->tiles[i].row0, rows = from->tiles[i].row1 - r0;
    value_new(L, to, i);
    lower_cast_rows(L, to, r0, L->s.key.dtype, from, r0, L->s.key.dtype, rows);
}

void gate_backward(struct lowering *L, const struct block *b, int t, int i)
{
    struct attention_layer *a = b->values;
    struct attention_work *W = attention_work(L, &b->weights->attention);
    struct value *o = &a->o[t], *gate = &a->gate[t], *d_o = &W->d_o[t], *dgate = &W->dgate[t];
    int64_t r0 = o->tiles[i].row0, r1 = o->tiles[i].row1, x0 = b->normed->tiles[i % L->n_chunks].row0;
    value_get(L, gate, i);
    copy(L, dgate, gate, i);
    value_drop(L, gate, i);
    copy(L, d_o, o, i);
    emit_gate(L, b, OP_SWIGLU_GRAD, r1 - r0);
    arg_update(L, 0, dgate, r0, r1, DEV);
    arg_update(L, 1, d_o, r0, r1, DEV);
    arg_update(L, 2, &W->gated, x0, x0 + r1 - r0, DEV);
    emit_done(L, 0);
    value_put(L, dgate, i);
    value_drop(L, dgate, i);
}

void gates_leave_input(struct lowering *L, const struct block *b, int c)
{
    if (!has_gates(b))
        return;
    value_drop(L, b->normed, c);
    value_pause(L, b->source, c);
}
