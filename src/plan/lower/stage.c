#include "plan/lower/stage.h"

#include "model/part.h"
#include "plan/lower/activation.h"
#include "plan/lower/emit.h"
#include "plan/lower/ends.h"
#include "plan/lower/linear.h"
#include "plan/lower/load.h"
#include "plan/lower/pieces.h"
#include "plan/lower/program.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

enum { ENDS = DUTY_EMBED | DUTY_HEAD | DUTY_EMBED_GRAD };

/* --- Messages between stages --- */

/* Returns the least number of layers of any stage. */
static int64_t stage_layers(const struct lowering *L)
{
    const struct model *all = L->m->whole ? L->m->whole : L->m;
    const struct mesh_stages *given = &L->s.key.stages;
    int64_t least = max_i64(1, all->config.layers / L->pp);
    for (int s = 0; s < given->n; s++)
        least = min_i64(least, given->layers[s]);
    return least;
}

/* Returns the number of values that stages have. */
static int values_of(const struct lowering *L)
{
    return L->pp == 1 ? 0 : L->s.ahead ? STAGE_VALUES : STAGE_SHARES;
}

/* Returns the rows of a tile of a value that passes between stages: they divide a chunk of the stream, so that every layer can pass a part
 * of `rows` rows on. */
static int64_t tile_rows(const struct lowering *L, int64_t rows)
{
    const int64_t wanted = max_i64(1, rows / stage_layers(L));
    int64_t tile = min_i64(L->stream_chunk, wanted);
    while (L->stream_chunk % tile != 0)
        tile--;
    return tile;
}

void stage_create(struct lowering *L)
{
    static const char *const names[STAGE_VALUES] = {"stage.in",       "stage.out",     "stage.dout",      "stage.din",
                                                    "stage.embedded", "stage.head_in", "stage.head_grad", "stage.embed_grad"};
    for (int k = 0; k < values_of(L) && L->st == OK; k++) {
        const int64_t rows = k < STAGE_SHARES ? L->io_rows / L->tp : L->end_rows;
        value_create(L, &L->stage[k], names[k], CLASS_ACT, rows, L->m->config.dim * dtype_size(L->s.key.dtype),
                     k < STAGE_SHARES ? tile_rows(L, rows) : L->stream_chunk, RES_DEVICE);
        home_create(L, &L->stage[k], -1, RES_DEVICE);
        if (k == STAGE_OUT)
            program_add_copies(L->p, COPIES_OUTPUT, L->p->n_buffers - 1, strategy_slices(&L->s) + strategy_head_lag(&L->s));
    }
}

void stage_bind(struct lowering *L, int end)
{
    for (int k = 0; k < values_of(L) && L->duties != DUTY_UPDATE; k++)
        value_bind(L, &L->stage[k], end);
}

void stage_reserve(struct lowering *L)
{
    for (int t = 0; t < TIERS; t++)
        if (L->s.saved[t] > 0 && !(L->duties & DUTY_FORWARD))
            program_add_buffer(L->p, (enum tier)t, L->s.saved[t], CLASS_ACT, 1);
}

/* Sends rows [row0, row1) of `from` to the stage `distance` further, and receives these rows of `to` from the stage as far the other
 * way. */
static void shift(struct lowering *L, enum stage_value from, enum stage_value to, int distance, int64_t row0, int64_t row1)
{
    struct value *src = &L->stage[from], *dst = &L->stage[to];
    struct op_attrs *a = emit(L, OP_SHIFT, LANE_PP);
    a->comm.element = (int32_t)src->row_bytes;
    a->comm.n = a->comm.share = row1 - row0;
    a->comm.distance = distance;
    a->comm.send_if = program_stage_predicate(L->ring, L->m->n_masks, distance < 0);
    a->comm.recv_if = a->comm.send_if + 1;
    arg_read(L, 0, src, row0, row1, DEV);
    arg_update(L, 1, dst, row0, row1, DEV);
    emit_done(L, 0);
}

/* Scatters rows: each stage receives its share of those of the stage `root`. */
static void deal(struct lowering *L, enum stage_value from, struct value *to, int root)
{
    struct value *src = &L->stage[from];
    struct op_attrs *a = emit(L, OP_DEAL, LANE_PP);
    a->comm.element = (int32_t)src->row_bytes;
    a->comm.n = src->rows;
    a->comm.share = to->rows;
    a->comm.root = root;
    arg_read(L, 0, src, 0, src->rows, DEV);
    arg_write(L, 1, to, 0, to->rows, DEV);
    emit_done(L, 0);
}

/* Gathers rows: the stage `root` receives the shares of all stages. */
static void collect(struct lowering *L, struct value *from, enum stage_value to, int root)
{
    struct value *dst = &L->stage[to];
    struct op_attrs *a = emit(L, OP_COLLECT, LANE_PP);
    a->comm.element = (int32_t)dst->row_bytes;
    a->comm.n = dst->rows;
    a->comm.share = from->rows;
    a->comm.root = root;
    arg_read(L, 0, from, 0, from->rows, DEV);
    arg_update(L, 1, dst, 0, dst->rows, DEV);
    emit_done(L, 0);
}

int stage_embeds(const struct lowering *L)
{
    return L->pp > 1 && L->m->part.first_layer == 0 && model_first_embeds(L->m);
}

/* Tells whether all stages compute the gradient of the embedding, or of an adapter of it. */
static int trains_embedding(const struct lowering *L)
{
    return !model_first_embeds(L->m) && L->m->units[MODEL_EMBEDDING_UNIT].trained_elements > 0;
}

/* Messages of a half, in order: parts of a shift of rows, then those that deal out or collect rows of the model's ends. */
struct messages {
    int parts, n;
};

/* Lists the messages of a forward (backward = 0) or backward half. Without a lag of 2, gradients go to the stage before in forward halves
 * and outputs to the next one in backward halves. */
static struct messages messages_of(const struct lowering *L, int backward)
{
    const int ends = !L->s.ahead ? 0
                     : backward  ? 2 + trains_embedding(L)
                                 : !model_first_embeds(L->m),
              tiles = L->stage[STAGE_IN].n_tiles;
    const int parts = (int)min_i64(tiles, max_i64(1, stage_layers(L) - ends));
    return (struct messages){parts, parts + ends};
}

/* Emits part i of the shift of a half. */
static void shift_part(struct lowering *L, int backward, int i, int parts)
{
    const int outputs = L->s.ahead ? !backward : backward, tiles = L->stage[STAGE_IN].n_tiles;
    const struct tile *first = &L->stage[STAGE_IN].tiles[tiles * i / parts],
                      *last = &L->stage[STAGE_IN].tiles[tiles * (i + 1) / parts - 1];
    if (outputs)
        shift(L, STAGE_OUT, STAGE_IN, 1, first->row0, last->row1);
    else
        shift(L, STAGE_DIN, STAGE_DOUT, -1, first->row0, last->row1);
}

/* Emits message i of a half. */
static void pass_one(struct lowering *L, int backward, int i)
{
    const struct messages m = messages_of(L, backward);
    if (i < m.parts)
        shift_part(L, backward, i, m.parts);
    else if (!backward)
        collect(L, &L->stage[STAGE_EMBEDDED], STAGE_IN, 0);
    else if (i == m.parts)
        collect(L, &L->stage[STAGE_HEAD_GRAD], STAGE_DOUT, L->pp - 1);
    else if (i == m.parts + 1)
        deal(L, STAGE_OUT, &L->stage[STAGE_HEAD_IN], L->pp - 1);
    else
        deal(L, STAGE_DIN, &L->stage[STAGE_EMBED_GRAD], 0);
}

/* Emits the next messages of a half, up to number `end`. */
static void pass_until(struct lowering *L, int backward, int end)
{
    const enum phase phase = L->phase;
    const int unit = L->unit;
    L->phase = PHASE_IO;
    L->unit = -1;
    for (; L->passed < end; L->passed++)
        pass_one(L, backward, L->passed);
    L->phase = phase;
    L->unit = unit;
}

void stage_pass(struct lowering *L, int layer)
{
    if (L->pp == 1)
        return;
    const int backward = L->phase == PHASE_BACKWARD, n = messages_of(L, backward).n;
    const int64_t own = L->m->config.layers, begun = backward ? own - layer : layer + 1; /* layers that the half has begun */
    pass_until(L, backward, begun == own ? n : (int)min_i64(n, ceil_div(n * begun, stage_layers(L))));
}

/* Copies the rows of chunk c of the stream, which `chunks` has as a tile. */
static void copy_chunk(struct lowering *L, struct value *to, struct value *from, const struct value *chunks, int c)
{
    const int64_t r0 = chunks->tiles[c].row0, r1 = chunks->tiles[c].row1;
    lower_cast_rows(L, to, r0, L->s.key.dtype, from, r0, L->s.key.dtype, r1 - r0);
}

static void take_input(struct lowering *L, int c)
{
    value_new(L, &L->x[0], c);
    copy_chunk(L, &L->x[0], &L->stage[STAGE_IN], &L->x[0], c);
    value_put(L, &L->x[0], c);
    value_pause(L, &L->x[0], c);
}

void stage_leave_output(struct lowering *L, int c)
{
    struct value *x = &L->x[L->m->config.layers];
    copy_chunk(L, &L->stage[STAGE_OUT], x, x, c);
    value_drop(L, x, c);
}

static void take_gradient(struct lowering *L, int c)
{
    value_new(L, &L->dx, c);
    copy_chunk(L, &L->dx, &L->stage[STAGE_DOUT], &L->dx, c);
    value_put(L, &L->dx, c);
    value_drop(L, &L->dx, c);
}

void stage_begin_forward(struct lowering *L)
{
    L->phase = PHASE_FORWARD;
    for (int c = 0; c < L->n_chunks; c++)
        take_input(L, c);
}

void stage_begin_backward(struct lowering *L)
{
    L->phase = PHASE_BACKWARD;
    L->passed = 0; /* a program with both halves has passed the other one's messages on */
    for (int c = 0; c < L->n_chunks; c++)
        take_gradient(L, c);
}

void stage_leave_gradient(struct lowering *L, int c)
{
    value_get(L, &L->dx, c);
    copy_chunk(L, &L->stage[STAGE_DIN], &L->dx, &L->dx, c);
    value_drop(L, &L->dx, c);
}

/* --- Both ends --- */

/* Makes one buffer of a value's rows, which stay on the device. */
static void whole_on_device(struct lowering *L, struct value *v, const char *name)
{
    activation_of_work(L, RES_DEVICE, -1, &(struct activation){v, name, L->m->config.dim, L->s.key.dtype, STREAM});
    v->full = 1;
    value_open_full(L, v);
}

void stage_end_values(struct lowering *L)
{
    const int layers = (int)L->m->config.layers;
    L->x = memory_new(L, layers + 1, sizeof *L->x);
    if (L->st != OK || !(L->duties & (int)ENDS))
        return;
    if (L->duties & DUTY_EMBED)
        whole_on_device(L, &L->x[0], "x");
    if (L->duties & DUTY_HEAD) {
        whole_on_device(L, &L->x[layers], "x");
        activation_of_work(L, RES_NONE, -1,
                           &(struct activation){&L->final_n, "final_n", L->m->config.dim, L->s.key.dtype, STREAM});
        loss_values(L);
    }
    if ((L->duties & (DUTY_HEAD | DUTY_EMBED_GRAD)) && !(L->duties & DUTY_EVALUATE))
        whole_on_device(L, &L->dx, "dx");
    adapter_values(L);
}

/* Takes this stage's share of rows: from the stage `root`, or from where layers' programs have left it. */
static void take_share(struct lowering *L, enum stage_value from, enum stage_value share, struct value *to, int root)
{
    for (int i = 0; i < to->n_tiles; i++) {
        value_new(L, to, i);
        if (L->s.ahead)
            copy_chunk(L, to, &L->stage[share], to, i);
    }
    if (!L->s.ahead)
        deal(L, from, to, root);
}

/* Leaves this stage's share of rows: for the stage `root`, or where layers' programs find it. */
static void leave_share(struct lowering *L, struct value *from, enum stage_value share, enum stage_value to, int root)
{
    for (int c = 0; L->s.ahead && c < L->n_chunks; c++)
        copy_chunk(L, &L->stage[share], from, from, c);
    if (!L->s.ahead)
        collect(L, from, to, root);
}

/* Loads each token's row among those of the embedding that are trained by themselves. */
static void load_slots(struct lowering *L)
{
    if (L->m->embed_rows >= 0)
        value_get(L, &L->slots, 0);
}

static void lower_embedding(struct lowering *L)
{
    L->phase = PHASE_FORWARD;
    L->unit = MODEL_EMBEDDING_UNIT;
    value_get(L, &L->tokens, 0);
    value_get(L, &L->positions, 0);
    load_slots(L);
    unit_fetch(L, L->unit);
    for (int c = 0; c < L->n_chunks; c++)
        lower_embed(L, c);
    unit_drop(L, L->unit);
    leave_share(L, &L->x[0], STAGE_EMBEDDED, STAGE_IN, 0);
}

static void lower_head(struct lowering *L)
{
    const int last = model_head_unit(L->m), of_matrix = head_matrix_unit(L), gradient = !(L->duties & DUTY_EVALUATE);
    L->phase = PHASE_LOSS;
    L->unit = last;
    value_get(L, &L->targets, 0);
    if (lower_weighs(L))
        value_get(L, &L->weights, 0);
    if (adapter_drops(L) && L->m->head.rank > 0)
        value_get(L, &L->end_numbers, 0);
    if (L->m->head_rows >= 0)
        value_get(L, &L->columns, 0);
    value_open_full(L, &L->loss);
    take_share(L, STAGE_OUT, STAGE_HEAD_IN, &L->x[L->m->config.layers], L->pp - 1);
    unit_fetch(L, last);
    unit_fetch(L, of_matrix);
    if (gradient)
        grads_begin(L, last);
    if (gradient && of_matrix != last)
        grads_begin(L, of_matrix);
    for (int c = 0; c < L->n_chunks; c++)
        lower_loss_chunk(L, c, gradient);
    unit_drop(L, last);
    unit_drop(L, of_matrix);
    if (gradient)
        grads_finish(L, last);
    if (gradient && of_matrix != last) {
        L->unit = of_matrix;
        grads_finish(L, of_matrix);
    }
    if (gradient) {
        leave_share(L, &L->dx, STAGE_HEAD_GRAD, STAGE_DOUT, L->pp - 1);
        load_gather(L);
    }
    lower_loss_sum(L);
}

static void lower_embedding_gradient(struct lowering *L)
{
    const int unit = L->unit = MODEL_EMBEDDING_UNIT;
    L->phase = PHASE_BACKWARD;
    if (trains_embedding(L)) {
        value_get(L, &L->tokens, 0);
        value_get(L, &L->positions, 0);
        load_slots(L);
        take_share(L, STAGE_DIN, STAGE_EMBED_GRAD, &L->dx, 0);
        grads_begin(L, unit);
        if (L->m->embedding.rank > 0)
            unit_fetch(L, unit);
        for (int c = 0; c < L->n_chunks; c++)
            lower_embed_backward(L, c);
        if (L->m->embedding.rank > 0)
            unit_drop(L, unit);
        grads_finish(L, unit);
    }
    if (L->duties & DUTY_LAST)
        lower_norm(L);
}

void stage_lower(struct lowering *L)
{
    if (L->duties & (int)ENDS)
        value_get(L, &L->record, 0);
    if (L->duties & DUTY_EMBED)
        lower_embedding(L);
    if (L->duties & DUTY_HEAD)
        lower_head(L);
    if (L->duties & DUTY_EMBED_GRAD)
        lower_embedding_gradient(L);
    if (L->duties & DUTY_PASS_FORWARD)
        pass_until(L, 0, messages_of(L, 0).n);
    if (L->duties & DUTY_PASS_BACKWARD)
        pass_until(L, 1, messages_of(L, 1).n);
}
