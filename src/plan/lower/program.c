/* One program of a set: persistent buffers, values, the passes of its role, and what is live at both ends. */
#include "plan/lower/program.h"

#include "base/progress.h"
#include "plan/lower/blocks/attention.h"
#include "plan/lower/layers.h"
#include "plan/lower/lowering.h"
#include "plan/lower/memory.h"
#include "plan/lower/pieces.h"
#include "plan/lower/update.h"
#include "plan/lower/visit.h"

#include <string.h>

/* A persistent host buffer that the engine fills or reads. */
static int io_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_IO, rows, row_bytes, rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* One end of every query's interval of keys: a block of rows for each step of the ring. */
static int mask_value(struct lowering *L, struct value *v, const char *name)
{
    value_create(L, v, name, CLASS_IO, L->s.ring * L->attn_rows, 4, L->attn_rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* Partial losses: of this rank where it is alone, else of all of them. */
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

static void create_io(struct lowering *L, struct io_buffers *io)
{
    int64_t n = L->s.rows;
    io->tokens = io_value(L, &L->tokens, "tokens", n, 4);
    io->targets = io_value(L, &L->targets, "targets", n, 4);
    io->positions = io_value(L, &L->positions, "positions", n, 4);
    io->lo = mask_value(L, &L->lo, "lo");
    io->hi = mask_value(L, &L->hi, "hi");
    io->inv_freq = io_value(L, &L->inv_freq, "inv_freq", L->m->config.head_dim / 2, 4);
    io->record = io_value(L, &L->record, "record", 1, sizeof(struct step_record));
    io->norm = io_value(L, &L->norm, "norm", 1, sizeof(struct norm_result));
    io->loss = loss_value(L);
}

/* Rows cut into chunks; the rows of a routed value, member after member, each into its chunks. */
static void cut_chunks(struct lowering *L, struct value *v, const char *name, int64_t row_bytes, enum residency r, int members)
{
    int64_t *cuts = memory_new(L, members * L->n_chunks + 1, sizeof *cuts);
    int n = 0;
    memset(v, 0, sizeof *v);
    if (!cuts)
        return;
    for (int m = 0; m < members; m++)
        for (int c = 0; c < L->n_chunks; c++)
            cuts[n++] = m * L->s.rows + c * L->s.row_chunk;
    cuts[n] = members * L->s.rows;
    value_create_cuts(L, v, name, r == RES_NONE ? CLASS_WORK : CLASS_ACT, row_bytes, cuts, n, r);
}

/* Of what outlives a layer's pass, the last device_chunks chunks. */
static void keep_on_device(const struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (i % L->n_chunks >= L->n_chunks - L->s.device_chunks)
            v->tiles[i].residency = RES_DEVICE;
}

enum shape { CHUNKS, ROUTED /* one row per token and member; one buffer on the device while it is visited */ };

static void chunk_value(struct lowering *L, struct value *v, const char *name, int layer, int index, enum value_kind kind,
                        int64_t cols, enum dtype type, enum residency r, enum shape shape)
{
    char full_name[48];
    if (layer < 0)
        snprintf(full_name, sizeof full_name, "%s", name);
    else if (index < 0)
        snprintf(full_name, sizeof full_name, "layer%d.%s", layer, name);
    else
        snprintf(full_name, sizeof full_name, "layer%d.%s%d", layer, name, index);
    cut_chunks(L, v, full_name, cols * dtype_size(type), r, shape == ROUTED ? L->s.ulysses : 1);
    v->layer = layer;
    v->index = index;
    v->kind = kind;
    v->full = shape == ROUTED;
    if (layer >= 0 && r != RES_NONE)
        keep_on_device(L, v);
}

/* What may be recomputed: the first kept_chunks chunks keep it, the others do not. */
static void optional(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (i % L->n_chunks >= L->s.kept_chunks || !(L->role & ROLE_BACKWARD))
            v->tiles[i].residency = RES_NONE;
}

static enum residency acts_of(const struct lowering *L, int layer)
{
    int away = (int)L->m->config.layers - L->s.device_layers;
    return layer >= away ? RES_DEVICE : strategy_residency(&L->s, CLASS_ACT, layer, away);
}

/* What a layer of the forward pass reads again stays where gradients pass, if that is nearer than its home, which it has for the
 * backward pass only. */
static void stay_between_visits(const struct lowering *L, struct value *v, enum residency acts)
{
    int backward = L->role & ROLE_BACKWARD;
    v->staged = backward && acts == RES_NVME && L->s.passing == RES_HOST;
    v->lingers = acts != RES_DEVICE && L->s.passing == RES_DEVICE;
    for (int i = 0; i < v->n_tiles && !backward && L->s.passing < acts; i++)
        if (v->tiles[i].residency != RES_DEVICE)
            v->tiles[i].residency = v->lingers ? RES_NONE : L->s.passing;
}

int lower_keeps_input(const struct lowering *L, int l)
{
    return l == 0 || ((int)L->m->config.layers - 1 - l) % L->s.input_every == 0;
}

static void create_activations(struct lowering *L)
{
    const struct model_config *c = &L->m->config;
    enum dtype T = L->s.dtype;
    enum residency passing = L->s.passing;
    int64_t q_cols = L->s.head_tile * c->head_dim, kv_cols = L->kv_heads_tile * c->head_dim;
    int gated = c->family == FAMILY_LLAMA;
    for (int l = 0; l <= (int)c->layers; l++) {
        chunk_value(L, &L->x[l], "x", l, -1, l ? VALUE_X : VALUE_TEMP, c->dim, T, l < (int)c->layers ? acts_of(L, l) : RES_NONE,
                    CHUNKS);
        if (l < (int)c->layers)
            stay_between_visits(L, &L->x[l], acts_of(L, l));
        L->x[l].brief = l < (int)c->layers && !lower_keeps_input(L, l);
    }
    for (int l = 0; l < (int)c->layers; l++) {
        enum residency saved = acts_of(L, l), lasting = L->role & ROLE_BACKWARD ? saved : RES_NONE;
        for (int t = 0; t < L->n_tiles_q; t++) {
            int i = l * L->n_tiles_q + t;
            char name[32];
            chunk_value(L, &L->q[i], "q", l, t, VALUE_Q, q_cols, T, saved, ROUTED);
            optional(L, &L->q[i]);
            chunk_value(L, &L->o[i], "o", l, t, VALUE_TEMP, q_cols, T, saved, ROUTED);
            stay_between_visits(L, &L->o[i], saved);
            snprintf(name, sizeof name, "layer%d.lse%d", l, t);
            value_create(L, &L->lse[i], name, CLASS_ACT, L->s.head_tile, L->attn_rows * 4, L->s.head_tile, lasting);
        }
        for (int kt = 0; kt < L->n_tiles_kv; kt++) {
            int i = l * L->n_tiles_kv + kt;
            chunk_value(L, &L->k[i], "k", l, kt, VALUE_K, kv_cols, T, saved, ROUTED);
            chunk_value(L, &L->v[i], "v", l, kt, VALUE_V, kv_cols, T, saved, ROUTED);
            optional(L, &L->k[i]);
            optional(L, &L->v[i]);
        }
        chunk_value(L, &L->xmid[l], "xmid", l, -1, VALUE_XMID, c->dim, T, saved, CHUNKS);
        optional(L, &L->xmid[l]);
        chunk_value(L, &L->up[l], "up", l, -1, VALUE_UP, c->ffn, T, saved, CHUNKS);
        optional(L, &L->up[l]);
        if (gated) {
            chunk_value(L, &L->gate[l], "gate", l, -1, VALUE_GATE, c->ffn, T, saved, CHUNKS);
            optional(L, &L->gate[l]);
        }
    }
    chunk_value(L, &L->n1, "n1", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, CHUNKS);
    chunk_value(L, &L->n2, "n2", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, CHUNKS);
    chunk_value(L, &L->final_n, "final_n", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, CHUNKS);
    chunk_value(L, &L->acc, "acc", -1, -1, VALUE_TEMP, c->dim, F32, RES_NONE, CHUNKS);
    chunk_value(L, &L->act, "act", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, CHUNKS);
    chunk_value(L, &L->dact, "dact", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, CHUNKS);
    chunk_value(L, &L->dx, "dx", -1, -1, VALUE_TEMP, c->dim, T, passing, CHUNKS);
    value_create(L, &L->dn, "dn", CLASS_WORK, L->s.rows, c->dim * 4, L->s.loss_tile, RES_NONE);
    value_create(L, &L->logits, "logits", CLASS_WORK, L->s.rows, c->vocab * 4, L->s.loss_tile, RES_NONE);
    for (int t = 0; t < L->n_tiles_q; t++) {
        char name[32];
        snprintf(name, sizeof name, "do%d", t);
        chunk_value(L, &L->d_o[t], name, -1, -1, VALUE_TEMP, q_cols, T, RES_NONE, ROUTED);
        snprintf(name, sizeof name, "delta%d", t);
        chunk_value(L, &L->delta[t], name, -1, -1, VALUE_TEMP, L->s.head_tile, F32, RES_NONE, ROUTED);
        snprintf(name, sizeof name, "dq%d", t);
        chunk_value(L, &L->dq[t], name, -1, -1, VALUE_TEMP, q_cols, dq_type(L), passing, ROUTED);
    }
    for (int kt = 0; kt < L->n_tiles_kv; kt++) {
        char name[32];
        snprintf(name, sizeof name, "dk%d", kt);
        chunk_value(L, &L->dk[kt], name, -1, -1, VALUE_TEMP, kv_cols, F32, passing, ROUTED);
        snprintf(name, sizeof name, "dv%d", kt);
        chunk_value(L, &L->dv[kt], name, -1, -1, VALUE_TEMP, kv_cols, F32, passing, ROUTED);
    }
}

static struct value *values_alloc(struct lowering *L, int n)
{
    return memory_new(L, n, sizeof(struct value));
}

static void allocate(struct lowering *L)
{
    int layers = (int)L->m->config.layers;
    L->units = memory_new(L, L->m->n_units, sizeof *L->units);
    L->x = values_alloc(L, layers + 1);
    L->q = values_alloc(L, layers * L->n_tiles_q);
    L->o = values_alloc(L, layers * L->n_tiles_q);
    L->lse = values_alloc(L, layers * L->n_tiles_q);
    L->k = values_alloc(L, layers * L->n_tiles_kv);
    L->v = values_alloc(L, layers * L->n_tiles_kv);
    L->xmid = values_alloc(L, layers);
    L->gate = values_alloc(L, layers);
    L->up = values_alloc(L, layers);
    L->d_o = values_alloc(L, L->n_tiles_q);
    L->delta = values_alloc(L, L->n_tiles_q);
    L->dq = values_alloc(L, L->n_tiles_q);
    L->dk = values_alloc(L, L->n_tiles_kv);
    L->dv = values_alloc(L, L->n_tiles_kv);
}

static void bind_persistent(struct lowering *L, int end)
{
    units_bind(L, end);
    if (end) {
        if (L->role & ROLE_FORWARD)
            value_bind(L, L->s.ranks > 1 ? &L->all_loss : &L->loss, 1);
        if (L->role & ROLE_LAST)
            value_bind(L, &L->norm, 1);
        return;
    }
    struct value *inputs[] = {&L->tokens, &L->targets, &L->positions, &L->lo, &L->hi, &L->inv_freq, &L->record};
    for (int i = 0; i < 7; i++)
        value_bind(L, inputs[i], 0);
    if (L->role & ROLE_UPDATE)
        value_bind(L, &L->norm, 0);
}

static void load_inputs(struct lowering *L)
{
    L->phase = 'i';
    L->layer = -1;
    if (L->role != ROLE_UPDATE || !L->s.update_on_host || strategy_updates_on_both(&L->s))
        value_get(L, &L->record, 0);
    if (!(L->role & ROLE_FORWARD))
        return;
    value_get(L, &L->tokens, 0);
    value_get(L, &L->targets, 0);
    value_get(L, &L->positions, 0);
    if (L->s.ring == 1) {
        value_get(L, &L->lo, 0);
        value_get(L, &L->hi, 0);
    }
    if (L->m->pos_embed < 0)
        value_get(L, &L->inv_freq, 0);
}

enum status lower_program(const struct model *m, const struct strategy *s, int role, struct io_buffers *io, struct program **out)
{
    static const char *const names[] = {"", "update ", "forward ", "update+forward "};
    struct lowering L = {.m = m, .s = *s, .role = role};
    char name[sizeof L.p->name];
    int n = snprintf(name, sizeof name, "%s%s%s%s", names[role & 3], role & ROLE_BACKWARD ? "backward" : "",
                     role & ROLE_FIRST ? " first" : "", role & ROLE_LAST ? " last" : "");
    if (n > 0 && name[n - 1] == ' ')
        name[n - 1] = 0;
    progress_program(s->seq_len);
    TRY(program_create(name, &L.p));
    L.p->discrete = s->discrete;
    int g;
    L.attn_rows = s->rows * s->ulysses;
    L.n_chunks = (int)ceil_div(s->rows, s->row_chunk);
    L.local_heads = (int)(m->config.heads / s->ulysses);
    L.local_kv_heads = (int)max_i64(1, m->config.kv_heads / s->ulysses);
    g = L.local_heads / L.local_kv_heads;
    L.n_tiles_q = L.local_heads / s->head_tile;
    L.kv_heads_tile = s->head_tile >= g ? s->head_tile / g : 1;
    L.n_tiles_kv = L.local_kv_heads / L.kv_heads_tile;
    L.q_per_kv = L.n_tiles_q / L.n_tiles_kv;
    L.n_loss = ceil_div(s->rows, s->loss_tile);
    L.p->group_size[LANE_WORLD] = s->ranks;
    L.p->group_size[LANE_ULYSSES] = s->ulysses;
    L.p->group_size[LANE_RING] = s->ring;
    allocate(&L);
    if (L.st == OK)
        units_create(&L);
    if (L.st == OK)
        create_io(&L, io);
    L.p->n_persistent = L.p->n_buffers;
    if (L.st == OK)
        create_activations(&L);
    if (L.st == OK)
        attention_values_create(&L);
    value_create(&L, &L.sums, "sums", CLASS_WORK, L.n_sums > 0 ? L.n_sums : 1, 8, 1, RES_DEVICE);
    L.sums.full = 1;
    if (optim_sharded(&L)) {
        value_create(&L, &L.all_sums, "all_sums", CLASS_WORK, L.s.ranks * L.sums.rows, 8, L.s.ranks * L.sums.rows, RES_DEVICE);
        L.all_sums.full = 1;
    }
    if (L.st == OK) {
        bind_persistent(&L, 0);
        load_inputs(&L);
        if (role & ROLE_LAST)
            value_open_full(&L, &L.sums);
        if (role & ROLE_FORWARD) {
            value_open_full(&L, &L.loss);
            lower_forward(&L);
        } else {
            for (int u = 0; u < m->n_units; u++) {
                L.layer = u;
                unit_update(&L, u);
            }
        }
    }
    if (L.st == OK && (role & ROLE_BACKWARD))
        lower_backward(&L);
    if (L.st == OK && (role & ROLE_FORWARD))
        lower_loss_sum(&L);
    if (L.st == OK && (role & ROLE_LAST))
        lower_norm(&L);
    if (L.st == OK)
        bind_persistent(&L, 1);
    if (L.st == OK)
        L.st = program_built(L.p);
    program_number(L.p);
    memory_free(&L);
    if (L.st != OK) {
        program_destroy(L.p);
        return L.st;
    }
    *out = L.p;
    return OK;
}
