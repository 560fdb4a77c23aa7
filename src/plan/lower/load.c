#include "plan/lower/load.h"

#include "plan/lower/emit.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

enum { LEVELS = 3 }; /* lanes along which ranks share a sequence, at most */

struct expert_load {
    int layers; /* layers with experts */
    int active; /* 1: this program counts */
    double aux; /* coefficient of the balancing loss of one sequence; 0: there is none */
    /* a row of the experts' token counts for each of these layers; with a balancing loss also a row of counts by the softmax alone
     * (without the bias of choices) and a row of sums of the softmax */
    struct value counts;
    /* tokens by the softmax alone: of the ranks along one, then two of the lanes that share a sequence; of all ranks that share it, in
     * pipelines an input of backward halves */
    struct value near[LEVELS - 1], plain;
    /* pipelines, programs of the head: tokens by the softmax alone of the stage's layers, an input; those of the ranks that share the
     * sequence; of all stages, an output */
    struct value own, shared, stages;
};

/* Returns the number of ranks that share a sequence. */
static int sharing(const struct lowering *L)
{
    return mesh_sharing(&L->s.key.mesh);
}

/* Lists the lanes along which ranks share a sequence. Returns their number. */
static int list_levels(const struct lowering *L, enum lane lane[LEVELS])
{
    static const enum lane all[LEVELS] = {LANE_TP, LANE_ULYSSES, LANE_RING};
    int n = 0;
    for (int i = 0; i < LEVELS; i++)
        if (mesh_members(&L->s.key.mesh, all[i]) > 1)
            lane[n++] = all[i];
    return n;
}

/* Creates the counts of ranks along all lanes that share a sequence but the last. */
static void create_near(struct lowering *L)
{
    static const char *const names[LEVELS - 1] = {"plain.near", "plain.nearer"};
    struct value *near = L->load->near;
    enum lane lane[LEVELS];
    int64_t rows = 1;
    const int n = list_levels(L, lane);
    for (int i = 0; i + 1 < n; i++) {
        rows *= mesh_members(&L->s.key.mesh, lane[i]);
        value_create(L, &near[i], names[i], CLASS_WORK, rows, L->m->config.experts * 4, rows, RES_NONE);
    }
}

static int counts_rows(const struct expert_load *x)
{
    return x->layers + (x->aux > 0 ? 2 : 0);
}

/* Creates a persistent value of counts that the engine fills or reads, in tiles of `cut` rows. Returns its buffer. */
static int create_counts(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t cut)
{
    value_create(L, v, name, CLASS_IO, rows, L->m->config.experts * 4, cut, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* Creates the counts of the balancing loss that pass between ranks or, in pipelines, between programs. */
static void create_passing(struct lowering *L, struct io_buffers *io)
{
    struct expert_load *x = L->load;
    const int members = sharing(L), pipeline = L->pp > 1;
    const int64_t row_bytes = L->m->config.experts * 4;
    if (x->aux == 0 || (members == 1 && !pipeline))
        return;
    create_near(L);
    io->plain = create_counts(L, &x->plain, "plain", members, members);
    if (!pipeline)
        return;
    if (members > 1)
        value_create(L, &x->shared, "plain.shared", CLASS_WORK, members, row_bytes, members, RES_NONE);
    io->plain_own = create_counts(L, &x->own, "plain.own", 1, 1);
    io->plain_stages = create_counts(L, &x->stages, "plain.stages", L->pp * members, L->pp * members);
}

void load_create(struct lowering *L, struct io_buffers *io)
{
    const int layers = model_expert_layers(L->m);
    io->load = io->plain = io->plain_own = io->plain_stages = -1;
    if (model_expert_layers(L->m->whole) == 0)
        return;
    struct expert_load *x = L->load = memory_new(L, 1, sizeof *x);
    if (!x)
        return;
    x->layers = layers;
    x->active = layers > 0 && (L->duties & DUTY_BACKWARD) != 0;
    x->aux = model_aux(&L->m->config) / (double)strategy_micro_batches(&L->s);
    if (layers > 0)
        io->load = create_counts(L, &x->counts, "load", counts_rows(x), 1);
    create_passing(L, io);
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

/* Gathers a row of counts from all ranks that share the sequence. */
static void gather_sequence(struct lowering *L, struct value *to, struct value *from, int64_t row)
{
    enum lane lane[LEVELS];
    const int n = list_levels(L, lane);
    int64_t end = row + 1;
    for (int i = 0; i < n; i++) {
        struct value *next = i + 1 < n ? &L->load->near[i] : to;
        gather(L, next, from, row, end, lane[i]);
        from = next;
        row = 0;
        end = next->rows;
    }
}

/* Returns the positions of this rank's rows of the stream. */
static struct value *own_positions(struct lowering *L)
{
    return L->own_positions.n_tiles > 0 ? &L->own_positions : &L->positions;
}

void load_end(struct lowering *L)
{
    struct expert_load *x = L->load;
    if (!is_active(L))
        return;
    L->phase = PHASE_IO;
    L->unit = -1;
    value_put_home(L, &x->counts, 0, x->counts.rows, DEV);
    if (x->aux == 0 || sharing(L) == 1 || L->pp > 1)
        return;
    gather_sequence(L, &x->plain, &x->counts, x->layers);
    value_put_home(L, &x->plain, 0, x->plain.rows, DEV);
}

/* Tells whether the counts pass between a pipeline's programs. */
static int passes_counts(const struct lowering *L)
{
    return L->load && L->load->stages.n_tiles > 0 && L->st == OK;
}

void load_take(struct lowering *L)
{
    if (passes_counts(L))
        value_get(L, &L->load->plain, 0);
}

void load_gather(struct lowering *L)
{
    struct expert_load *x = L->load;
    if (!passes_counts(L))
        return;
    struct value *from = sharing(L) > 1 ? &x->shared : &x->own;
    value_get(L, &x->own, 0);
    if (sharing(L) > 1)
        gather_sequence(L, from, &x->own, 0);
    gather(L, &x->stages, from, 0, from->rows, LANE_PP);
    value_put_home(L, &x->stages, 0, x->stages.rows, DEV);
}

/* Tells whether the program gathers the counts of all stages. */
static int gathers(const struct lowering *L)
{
    return (L->duties & DUTY_HEAD) && !(L->duties & DUTY_EVALUATE);
}

void load_bind(struct lowering *L, int end)
{
    if (passes_counts(L) && !end) {
        value_bind(L, &L->load->own, 0);
        value_bind(L, &L->load->plain, 0);
    } else if (passes_counts(L) && gathers(L)) {
        value_bind(L, &L->load->stages, 1);
    }
    if (!is_active(L) || !end)
        return;
    value_bind(L, &L->load->counts, 1);
    if (L->load->plain.n_tiles > 0 && L->pp == 1)
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
    arg_read(L, 7, own_positions(L), first, end, DEV);
}

void load_balance(struct lowering *L, struct op_attrs *a, int64_t first, int64_t end)
{
    struct expert_load *x = L->load;
    if (!is_active(L) || x->aux == 0)
        return;
    a->route.parts = sharing(L);
    a->route.aux = (float)x->aux;
    if (x->plain.n_tiles > 0)
        arg_read(L, 5, &x->plain, 0, x->plain.rows, DEV);
    else
        arg_read(L, 5, &x->counts, x->layers, x->layers + 1, DEV);
    arg_read(L, 6, own_positions(L), first, end, DEV);
}
