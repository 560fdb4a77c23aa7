/* One program of a set: persistent buffers, values, the passes of its duties, and the bindings that are live at its start and end. */
#include "plan/lower/program.h"

#include "base/progress.h"
#include "model/part.h"
#include "model/share.h"
#include "plan/lower/blocks/kept.h"
#include "plan/lower/linear.h"
#include "plan/lower/decode.h"
#include "plan/lower/ends.h"
#include "plan/lower/halves.h"
#include "plan/lower/layers.h"
#include "plan/lower/load.h"
#include "plan/lower/lowering.h"
#include "plan/lower/stage.h"
#include "plan/lower/value.h"
#include "plan/lower/state.h"
#include "plan/lower/token_rows.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

/* Creates a persistent host buffer that the engine fills or reads. */
static int io_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_IO, rows, row_bytes, rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* Creates one end of every query's interval of keys: a block of rows for each step of the ring. */
static int mask_value(struct lowering *L, struct value *v, const char *what, int mask)
{
    char name[MASK_NAME];
    mask_name(name, what, mask);
    value_create(L, v, name, CLASS_IO, L->ring * L->attn_rows, 4, L->attn_rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* Creates the partial losses: this rank's if it is alone, else those of all ranks. */
static int loss_value(struct lowering *L)
{
    int alone = L->s.ranks == 1;
    struct value *io = alone ? &L->loss : &L->all_loss;
    value_create(L, io, alone ? "loss" : "all_loss", CLASS_IO, L->s.ranks * L->n_loss, 8, alone ? 1 : L->s.ranks * L->n_loss,
                 RES_HOST);
    home_create(L, io, -1, RES_HOST);
    if (!alone) {
        value_create(L, &L->loss, "loss", CLASS_WORK, L->n_loss, 8, 1, RES_NONE);
        L->loss.full = 1;
    }
    return io->tiles ? io->tiles[0].home.buffer : 0;
}

/* Tells whether the head's adapter has dropout. */
static int head_drops(const struct lowering *L)
{
    return L->m->config.lora.dropout > 0 && L->m->head.rank > 0;
}

/* Tells whether experts' tokens are counted among other rows than the inputs have: slices have some rows of each chunk. */
static int counts_own_rows(const struct lowering *L)
{
    return L->tp > 1 && L->m->pos_embed < 0 && model_expert_layers(L->m) > 0;
}

static void create_io(struct lowering *L, struct io_buffers *io)
{
    int64_t n = L->io_rows, of_stream = n / L->tp;
    io->tokens = io_value(L, &L->tokens, "tokens", of_stream, 4);
    io->targets = io_value(L, &L->targets, "targets", of_stream, 4);
    io->positions = io_value(L, &L->positions, "positions", L->m->pos_embed >= 0 ? of_stream : n, 4);
    io->own_positions = counts_own_rows(L) ? io_value(L, &L->own_positions, "own_positions", of_stream, 4) : -1;
    for (int i = 0; i < L->m->n_masks; i++) {
        io->lo[i] = mask_value(L, &L->lo[i], "lo", i);
        io->hi[i] = mask_value(L, &L->hi[i], "hi", i);
    }
    io->inv_freq = io_value(L, &L->inv_freq, "inv_freq", L->m->n_frequencies, 4);
    io->record = io_value(L, &L->record, "record", 1, sizeof(struct step_record));
    io->index = kept_keys(L) ? io_value(L, &L->index, "index", L->attn_rows, 4) : -1;
    io->numbers = L->m->config.lora.dropout > 0 ? io_value(L, &L->numbers, "numbers", n, 4) : -1;
    io->end_numbers = head_drops(L) ? io_value(L, &L->end_numbers, "end_numbers", of_stream, 4) : -1;
    io->slots = L->m->embed_rows >= 0 ? io_value(L, &L->slots, "slots", of_stream, 4) : -1;
    io->columns = L->m->head_rows >= 0 ? io_value(L, &L->columns, "columns", token_rows_of_head(L), 4) : -1;
    io->norm = io_value(L, &L->norm, "norm", 1, sizeof(struct norm_result));
    io->loss = loss_value(L);
    load_create(L, io);
    io->links = model_has_links(L->m) ? io_value(L, &L->links, "links", n, 4) : -1;
    io->order = L->s.piece > 0 ? io_value(L, &L->order, "order", (L->ring * L->ulysses + 2) * L->pieces, 4) : -1;
    io->weights = L->s.weighted ? io_value(L, &L->weights, "weights", of_stream, 4) : -1;
    io->each = -1;
    if (L->s.evaluates) {
        value_create(L, &L->each, "each", CLASS_IO, L->end_rows, 4, L->s.key.loss_tile, RES_HOST);
        home_create(L, &L->each, -1, RES_HOST);
        io->each = L->each.tiles ? L->each.tiles[0].home.buffer : 0;
    }
}

/* Tells whether the program computes the loss, or the gradient's norm: in a pipeline, programs of the model's ends do. */
static int computes_loss(const struct lowering *L)
{
    return (L->duties & (L->pp > 1 ? DUTY_HEAD : DUTY_FORWARD)) != 0;
}

static int computes_norm(const struct lowering *L)
{
    return (L->duties & DUTY_LAST) && (L->pp == 1 || (L->duties & DUTY_EMBED_GRAD));
}

/* Binds the sums of squares that a pipeline's programs leave for the last one, which computes the norm. */
static void bind_sums(struct lowering *L, int end)
{
    for (int u = 0; u < L->m->n_units && L->pp > 1 && (L->duties & DUTY_LAST); u++) {
        const int own = (unit_duties(L, u) & DUTY_LAST) != 0;
        for (int k = 0; k < unit_trained_groups(L, u) && (end ? own && !computes_norm(L) : !own && computes_norm(L)); k++)
            value_bind_tiles(L, &L->sums, (int)L->units[u].sum[k], 1, end);
    }
}

static void bind_persistent(struct lowering *L, int end)
{
    units_bind(L, end);
    if (end) {
        stage_bind(L, 1);
        kept_bind(L, 1);
        bind_sums(L, 1);
        if (computes_loss(L))
            value_bind(L, L->s.ranks > 1 ? &L->all_loss : &L->loss, 1);
        if (computes_norm(L))
            value_bind(L, &L->norm, 1);
        if (lower_says_each(L))
            value_bind(L, &L->each, 1);
        load_bind(L, 1);
        return;
    }
    struct value *first[] = {&L->tokens, &L->targets, &L->positions}, *last[] = {&L->inv_freq, &L->record};
    for (int i = 0; i < 3; i++)
        value_bind(L, first[i], 0);
    for (int i = 0; i < L->m->n_masks; i++) {
        value_bind(L, &L->lo[i], 0);
        value_bind(L, &L->hi[i], 0);
    }
    for (int i = 0; i < 2; i++)
        value_bind(L, last[i], 0);
    if (L->m->config.lora.dropout > 0)
        value_bind(L, &L->numbers, 0);
    if (head_drops(L))
        value_bind(L, &L->end_numbers, 0);
    if (counts_own_rows(L))
        value_bind(L, &L->own_positions, 0);
    if (L->m->embed_rows >= 0)
        value_bind(L, &L->slots, 0);
    if (L->m->head_rows >= 0)
        value_bind(L, &L->columns, 0);
    if (model_has_links(L->m))
        value_bind(L, &L->links, 0);
    if (L->s.piece > 0)
        value_bind(L, &L->order, 0);
    if (kept_keys(L))
        value_bind(L, &L->index, 0);
    if (L->s.weighted)
        value_bind(L, &L->weights, 0);
    if (L->duties & DUTY_UPDATE)
        value_bind(L, &L->norm, 0);
    stage_bind(L, 0);
    kept_bind(L, 0);
    load_bind(L, 0);
    bind_sums(L, 0);
}

static void load_inputs(struct lowering *L)
{
    L->phase = PHASE_IO;
    L->unit = -1;
    if (L->duties != DUTY_UPDATE || !L->s.placement.update_on_host || strategy_updates_on_both(&L->s))
        value_get(L, &L->record, 0);
    if (!(L->duties & DUTY_FORWARD))
        return;
    value_get(L, &L->tokens, 0);
    value_get(L, &L->targets, 0);
    value_get(L, &L->positions, 0);
    if (counts_own_rows(L))
        value_get(L, &L->own_positions, 0);
    for (int i = 0; i < L->m->n_masks && L->ring == 1; i++) {
        value_get(L, &L->lo[i], 0);
        value_get(L, &L->hi[i], 0);
    }
    if (L->m->n_ropes > 0)
        value_get(L, &L->inv_freq, 0);
    if (adapter_drops(L))
        value_get(L, &L->numbers, 0);
    if (adapter_drops(L) && head_drops(L) && L->pp == 1)
        value_get(L, &L->end_numbers, 0);
    if (L->m->embed_rows >= 0)
        value_get(L, &L->slots, 0);
    if (L->m->head_rows >= 0)
        value_get(L, &L->columns, 0);
    if (model_has_links(L->m))
        value_get(L, &L->links, 0);
    if (L->s.piece > 0)
        value_get(L, &L->order, 0);
    if (kept_keys(L))
        value_get(L, &L->index, 0);
    if (lower_weighs(L))
        value_get(L, &L->weights, 0);
}

/* Derives the sizes that follow from model and strategy. */
static void derive_sizes(struct lowering *L)
{
    const struct strategy copy = L->s, *s = &copy;
    L->ulysses = s->key.mesh.degree[MESH_ULYSSES];
    L->ring = s->key.mesh.degree[MESH_RING];
    L->ep = mesh_degree(&s->key.mesh, MESH_EP);
    L->tp = mesh_degree(&s->key.mesh, MESH_TP);
    L->pp = strategy_stages(s);
    L->io_rows = s->rows;
    L->attn_rows = s->rows * L->ulysses;
    if (lower_is_apart(L))
        L->s.rows = strategy_end_rows(s);
    L->stream_rows = L->s.rows / L->tp;
    L->stream_chunk = s->key.row_chunk / L->tp;
    L->n_chunks = (int)ceil_div(L->s.rows, s->key.row_chunk);
    L->pieces = s->piece > 0 ? (int)ceil_div(s->rows, s->piece) : 1;
    for (int i = 0; i < L->m->n_shapes; i++)
        L->heads[i] = heads_cut(&L->m->shapes[i], &s->key.mesh, s->key.head_tile);
    L->end_rows = strategy_end_rows(s) / L->tp;
    L->n_loss = ceil_div(L->end_rows, s->key.loss_tile);
    L->mask_rows = s->cached_tokens > 0 ? s->input_rows : L->attn_rows;
}

/* Tells whether stages have a unit's state for themselves: one of layers, or an embedding that the first stage alone computes. */
static int is_of_stage(const struct model *m, int unit)
{
    return model_unit_in_layer(m, unit) || (unit == MODEL_EMBEDDING_UNIT && model_first_embeds(m));
}

/* Returns the sums of a part's own units. */
static int64_t sums_of_part(const struct lowering *L, const struct model_part *part)
{
    struct model *m;
    int64_t n = 0;
    if (model_part_create(L->m->whole, part, &m) != OK)
        return 0;
    for (int u = 0; u < m->n_units; u++)
        n += is_of_stage(m, u) ? plan_groups(m, &L->s, u, m->units[u].trained_elements) : 0;
    model_destroy(m);
    return n;
}

/* Returns the number of sums of the stage with the most: all of these have the ends' sums. */
static int64_t most_sums(const struct lowering *L)
{
    const struct model *whole = L->m->whole;
    int64_t own = 0, most = L->n_sums;
    for (int u = 0; u < L->m->n_units; u++)
        own += is_of_stage(L->m, u) ? unit_trained_groups(L, u) : 0;
    for (int s = 0; whole && s < L->pp; s++) {
        struct model_part part;
        int64_t n = L->n_sums - own;
        if (model_stage_of(whole, &L->s.key.stages, s, L->pp, L->m->part.slice, L->tp, &part) != OK)
            continue;
        if (L->tp > 1) {
            most = max_i64(most, n + sums_of_part(L, &part));
            continue;
        }
        for (int u = 0; u < whole->n_units; u++)
            if (is_of_stage(whole, u) && whole->units[u].layer < part.first_layer + part.layers &&
                whole->units[u].layer >= (model_unit_in_layer(whole, u) ? part.first_layer : part.first_layer - 1))
                n += plan_groups(whole, &L->s, u, whole->units[u].trained_elements);
        most = max_i64(most, n);
    }
    return most;
}

/* Creates the sums of squares of the gradients of this rank's groups and, if these are shards, of all ranks' groups. */
static void create_sums(struct lowering *L)
{
    const int some = norm_scope(L) == NORM_OF_SOME;
    const int64_t rows =
        L->pp > 1 ? most_sums(L) : L->n_sums + (some ? L->n_parted_sums * mesh_members(&L->s.key.mesh, norm_lane(L)) : 0);
    value_create(L, &L->sums, "sums", L->pp > 1 ? CLASS_IO : CLASS_WORK, rows > 0 ? rows : 1, 8, 1, RES_DEVICE);
    L->sums.full = 1;
    if (L->pp > 1)
        home_create(L, &L->sums, -1, RES_DEVICE);
    if (norm_scope(L) == NORM_OF_ALL) {
        value_create(L, &L->all_sums, "all_sums", CLASS_WORK, L->s.ranks * L->sums.rows, 8, L->s.ranks * L->sums.rows,
                     RES_DEVICE);
        L->all_sums.full = 1;
    }
}

static void create_values(struct lowering *L, struct io_buffers *io)
{
    layers_create(L);
    if (L->st == OK)
        units_create(L, layers_grad_cuts);
    if (L->st == OK && L->s.cached_tokens > 0)
        decode_create(L, io);
    else if (L->st == OK)
        create_io(L, io);
    if (L->st == OK && L->pp > 1) {
        stage_create(L);
        kept_create(L);
        create_sums(L);
        stage_reserve(L);
    }
    L->p->n_persistent = L->p->n_buffers;
    if (L->st == OK && lower_is_apart(L))
        stage_end_values(L);
    else if (L->st == OK)
        layers_values(L);
    if (L->st == OK && L->pp == 1)
        create_sums(L);
}

static void update_units(struct lowering *L)
{
    for (int u = 0; u < L->m->n_units; u++) {
        L->unit = u;
        unit_update(L, u);
    }
}

/* Lowers the passes of the program's duties. */
static void lower_passes(struct lowering *L)
{
    bind_persistent(L, 0);
    if (lower_is_apart(L)) {
        stage_lower(L);
        if (L->st == OK)
            bind_persistent(L, 1);
        return;
    }
    load_inputs(L);
    if (L->duties & DUTY_LAST)
        value_open_full(L, &L->sums);
    if (L->duties & DUTY_FORWARD) {
        if (computes_loss(L))
            value_open_full(L, &L->loss);
        load_begin(L);
        lower_forward(L);
        load_end(L);
    } else {
        update_units(L);
    }
    if (L->st == OK && (L->duties & DUTY_BACKWARD))
        lower_backward(L);
    if (L->st == OK && computes_loss(L))
        lower_loss_sum(L);
    if (L->st == OK && computes_norm(L))
        lower_norm(L);
    if (L->st == OK)
        bind_persistent(L, 1);
}

/* Cuts the program of a pipeline's micro-batch in halves, or reserves what other micro-batches keep meanwhile. */
static enum status cut_in_halves(struct lowering *L)
{
    const int duties = L->duties;
    if (L->pp == 1 || !(duties & DUTY_BACKWARD) || L->p->excess)
        return OK;
    return halves_take(L->p, L->cut,
                       duties & DUTY_HALF_FORWARD    ? HALF_FORWARD
                       : duties & DUTY_HALF_BACKWARD ? HALF_BACKWARD
                                                     : HALF_BOTH,
                       strategy_slots(&L->s));
}

/* Writes a program's name, which tells its duties. */
static void name_program(const struct strategy *s, int duties, char *name, size_t room)
{
    static const char *const names[] = {"", "update ", "forward ", "update+forward "};
    const char *what = duties & DUTY_EMBED           ? "embedding"
                       : duties & DUTY_EVALUATE      ? "losses"
                       : duties & DUTY_HEAD          ? "head"
                       : duties & DUTY_EMBED_GRAD    ? "embedding's gradient"
                       : duties & DUTY_PASS_FORWARD  ? "forward of others"
                       : duties & DUTY_PASS_BACKWARD ? "backward of others"
                       : duties & DUTY_HALF_FORWARD  ? "forward half"
                       : duties & DUTY_BACKWARD      ? "backward"
                                                     : "";
    const int half = duties & DUTY_HALF_FORWARD, other = duties & DUTY_HALF_BACKWARD;
    int n = snprintf(name, room, "%s%s%s%s", half || other ? "" : names[duties & 3], what,
                     (duties & DUTY_FIRST) && !half ? " first" : "", duties & DUTY_LAST ? " last" : "");
    if (n > 0 && name[n - 1] == ' ')
        name[n - 1] = 0;
    if (other)
        snprintf(name, room, "backward half%s%s%s", duties & DUTY_FIRST ? " first" : "", duties & DUTY_LAST ? " last" : "",
                 duties & DUTY_NEXT ? " next" : "");
    if (s->cached_tokens > 0)
        snprintf(name, room, "decode %lld", (long long)s->rows);
}

/* Lowers a program; the model's units are those of one rank. */
static enum status lower_own(const struct model *m, const struct strategy *s, int duties, struct io_buffers *io,
                             struct program **out)
{
    struct lowering L = {.m = m, .s = *s, .duties = duties};
    char name[sizeof L.p->name];
    name_program(s, duties, name, sizeof name);
    progress_program(s->seq_len);
    TRY(program_create(name, &L.p));
    L.p->discrete = s->discrete;
    L.p->masks = m->n_masks;
    derive_sizes(&L);
    for (int l = LANE_WORLD; l < LANES; l++)
        L.p->group_size[l] = mesh_members(&s->key.mesh, (enum lane)l);
    create_values(&L, io);
    if (L.st == OK && s->cached_tokens > 0)
        decode_passes(&L);
    else if (L.st == OK)
        lower_passes(&L);
    if (L.st == OK)
        L.st = cut_in_halves(&L);
    if (L.st == OK || L.p->out_of_memory)
        L.st = program_built(L.p);
    program_number(L.p);
    memory_free(&L);
    if (L.st != OK && L.st != ERR_NOFIT) {
        program_destroy(L.p);
        return L.st;
    }
    *out = L.p;
    return OK;
}

enum status lower_io_bytes(const struct model *m, const struct strategy *s, int64_t out[TIERS])
{
    struct lowering L = {.m = m, .s = *s, .duties = DUTY_UPDATE};
    struct io_buffers io;
    TRY(program_create("inputs", &L.p));
    derive_sizes(&L);
    create_io(&L, &io);
    for (int t = 0; t < TIERS; t++)
        out[t] = 0;
    for (int b = 0; b < L.p->n_buffers; b++)
        out[L.p->buffers[b].tier] += round_up(L.p->buffers[b].bytes, BUFFER_ALIGN);
    if (L.st == OK && L.p->out_of_memory)
        L.st = program_built(L.p);
    memory_free(&L);
    program_destroy(L.p);
    return L.st;
}

enum status lower_program(const struct model *m, const struct strategy *s, int duties, struct io_buffers *io,
                          struct program **out)
{
    const int ep = mesh_degree(&s->key.mesh, MESH_EP);
    struct model own;
    if (ep == 1)
        return lower_own(m, s, duties, io, out);
    TRY(model_share_create(m, ep, &own));
    const enum status st = lower_own(&own, s, duties, io, out);
    model_share_free(&own);
    return st;
}
