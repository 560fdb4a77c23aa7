#include "plan/lower/load.h"

#include "plan/lower/emit.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

struct expert_load {
    int layers; /* layers with experts */
    int active; /* 1: this program counts */
    double aux; /* coefficient of the balancing loss of one sequence; 0: there is none */
    /* a row of the experts' token counts for each of these layers; with a balancing loss also a row of counts by the softmax alone
     * (without the bias of choices) and a row of sums of the softmax */
    struct value counts;
    /* tokens by the softmax alone: of this rank and those with the other heads; of all ranks that share the sequence */
    struct value near, plain;
};

/* Returns the number of ranks that share a sequence. */
static int sharing(const struct lowering *L)
{
    return L->ulysses * L->ring;
}

static int counts_rows(const struct expert_load *x)
{
    return x->layers + (x->aux > 0 ? 2 : 0);
}

void load_create(struct lowering *L, struct io_buffers *io)
{
    const struct model_config *c = &L->m->config;
    const int layers = model_expert_layers(L->m), members = sharing(L);
    io->load = io->plain = -1;
    if (layers == 0)
        return;
    struct expert_load *x = L->load = memory_new(L, 1, sizeof *x);
    if (!x)
        return;
    x->layers = layers;
    x->active = (L->duties & DUTY_BACKWARD) != 0;
    x->aux = model_aux(c) / (double)strategy_micro_batches(&L->s);
    value_create(L, &x->counts, "load", CLASS_IO, counts_rows(x), c->experts * 4, 1, RES_HOST);
    home_create(L, &x->counts, -1, RES_HOST);
    io->load = x->counts.tiles ? x->counts.tiles[0].home.buffer : 0;
    if (x->aux == 0 || members == 1)
        return;
    if (L->ring > 1 && L->ulysses > 1)
        value_create(L, &x->near, "plain.near", CLASS_WORK, L->ulysses, c->experts * 4, L->ulysses, RES_NONE);
    value_create(L, &x->plain, "plain", CLASS_IO, members, c->experts * 4, members, RES_HOST);
    home_create(L, &x->plain, -1, RES_HOST);
    io->plain = x->plain.tiles ? x->plain.tiles[0].home.buffer : 0;
}

static int is_active(const struct lowering *L)
{
    return L->load && L->load->active && L->st == OK;
}

void load_begin(struct lowering *L)
{
    struct expert_load *x = L->load;
    if (!is_active(L))
        return;
    L->phase = PHASE_FORWARD;
    value_open_full(L, &x->counts);
    for (int i = 0; i < x->counts.n_tiles; i++)
        value_new(L, &x->counts, i);
    struct op_attrs *a = emit(L, OP_FILL, LANE_COMPUTE);
    a->fill.bytes = x->counts.rows * x->counts.row_bytes;
    arg_write(L, 0, &x->counts, 0, x->counts.rows, DEV);
    emit_done(L, 0);
}

/* Gathers the rows of `from` of all members of a lane's groups. */
static void gather(struct lowering *L, struct value *to, struct value *from, int64_t first, int64_t end, enum lane lane)
{
    gather_group(L, to, from, (struct group){0, to->rows, first, end, lane}, 0);
}

void load_end(struct lowering *L)
{
    struct expert_load *x = L->load;
    const enum lane lane = L->ulysses > 1 ? LANE_ULYSSES : LANE_RING;
    if (!is_active(L))
        return;
    L->phase = PHASE_IO;
    L->unit = -1;
    value_put_home(L, &x->counts, 0, x->counts.rows, DEV);
    if (x->aux == 0 || sharing(L) == 1)
        return;
    const int two = x->near.n_tiles > 0;
    gather(L, two ? &x->near : &x->plain, &x->counts, x->layers, x->layers + 1, lane);
    if (two)
        gather(L, &x->plain, &x->near, 0, x->near.rows, LANE_RING);
    value_put_home(L, &x->plain, 0, x->plain.rows, DEV);
}

void load_bind(struct lowering *L)
{
    if (!is_active(L))
        return;
    value_bind(L, &L->load->counts, 1);
    if (L->load->plain.n_tiles > 0)
        value_bind(L, &L->load->plain, 1);
}

/* Returns the number of layers with experts before a layer. */
static int row_of(const struct lowering *L, int layer)
{
    int row = 0;
    for (int l = 0; l < layer; l++)
        row += L->layers[l].n_own > 0;
    return row;
}

void load_count(struct lowering *L, struct op_attrs *a, int layer, int64_t first, int64_t end)
{
    struct expert_load *x = L->load;
    if (!is_active(L) || L->phase == PHASE_BACKWARD)
        return;
    const int row = row_of(L, layer);
    a->route.accumulate = 1;
    arg_update(L, 2, &x->counts, row, row + 1, DEV);
    for (int i = 0; x->aux > 0 && i < 2; i++)
        arg_update(L, 3 + i, &x->counts, x->layers + i, x->layers + i + 1, DEV);
    arg_read(L, 7, &L->positions, first, end, DEV);
}

void load_balance(struct lowering *L, struct op_attrs *a, int64_t first, int64_t end)
{
    struct expert_load *x = L->load;
    if (!is_active(L) || x->aux == 0)
        return;
    a->route.parts = sharing(L);
    a->route.aux = (float)x->aux;
    if (sharing(L) > 1)
        arg_read(L, 5, &x->plain, 0, x->plain.rows, DEV);
    else
        arg_read(L, 5, &x->counts, x->layers, x->layers + 1, DEV);
    arg_read(L, 6, &L->positions, first, end, DEV);
}
