/* One program of a set: persistent buffers, values, the passes of its role, and what is live at both ends. */
#include "plan/lower.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CUTS 4096

static int persistent_buffer(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class)
{
    return program_add_buffer(L->p, tier, bytes, class, 1);
}

static enum tier tier_of(enum residency r)
{
    return r == RES_HOST ? TIER_HOST : r == RES_NVME ? TIER_NVME : TIER_DEVICE;
}

/* Gives a persistent value its fixed address: flat on the device, groups at aligned offsets elsewhere. */
static void home_create(struct lowering *L, struct value *v, int unit, enum residency r)
{
    if (v->n_tiles == 0)
        return;
    int64_t bytes = 0; /* so far; the next group starts at a multiple of BUFFER_ALIGN */
    int tile = 0;
    for (int64_t a = 0, b; a < v->rows; a = b) {
        b = min_i64(unit >= 0 ? group_end(L, unit, a) : v->rows, v->rows);
        bytes = r == RES_DEVICE ? a * v->row_bytes : round_up(bytes, BUFFER_ALIGN);
        for (; tile < v->n_tiles && v->tiles[tile].row0 < b; tile++) {
            v->tiles[tile].home.offset = bytes + (v->tiles[tile].row0 - a) * v->row_bytes;
            v->tiles[tile].extent_offset = bytes;
            v->tiles[tile].extent_bytes = (b - a) * v->row_bytes;
        }
        bytes += (b - a) * v->row_bytes;
    }
    int buffer = persistent_buffer(L, tier_of(r), bytes, v->class);
    for (int i = 0; i < v->n_tiles; i++) {
        v->tiles[i].home.buffer = buffer;
        v->tiles[i].residency = r;
    }
    v->full = 1;
    if (r == RES_DEVICE)
        v->full_buffer = buffer;
}

static void bind(struct lowering *L, const struct value *v, int live_out)
{
    for (int i = 0; i < v->n_tiles; i++) {
        const struct tile *t = &v->tiles[i];
        program_add_binding(L->p, live_out,
                            (struct binding){.buffer = t->home.buffer,
                                             .tensor = v->tensor,
                                             .version = t->version,
                                             .offset = t->home.offset,
                                             .row0 = t->row0,
                                             .row1 = t->row1,
                                             .extent_offset = t->extent_offset,
                                             .extent_bytes = t->extent_bytes});
    }
}

/* What the home holds is current at the start. */
static void live_in(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        v->tiles[i].place[tier_of(v->tiles[i].residency)] = v->tiles[i].home;
    bind(L, v, 0);
}

static void live_out(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (v->tiles[i].place[tier_of(v->tiles[i].residency)].buffer != v->tiles[i].home.buffer && L->st == OK)
            L->st = status_fail(ERR_CORRUPT, "planner: %s is not at home at the end of program %s", L->p->tensors[v->tensor].name,
                                L->p->name);
    bind(L, v, 1);
}

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Values over [0, rows) of a unit, cut at group borders and, if pieces, where gradients are written piecewise. */
static void unit_value(struct lowering *L, struct value *v, int unit, const char *what, enum tensor_class class, int64_t rows,
                       int64_t row_bytes, int pieces)
{
    static _Thread_local int64_t cuts[MAX_CUTS];
    char name[48];
    int n = 0, unique = 0;
    memset(v, 0, sizeof *v);
    v->full_buffer = -1;
    if (rows == 0)
        return;
    snprintf(name, sizeof name, "unit%d.%s", unit, what);
    for (int64_t a = 0; a < rows && n < MAX_CUTS - 1; a = group_end(L, unit, a))
        cuts[n++] = a;
    if (pieces)
        n = lower_grad_cuts(L, unit, cuts, n, MAX_CUTS - 1);
    cuts[n++] = rows;
    if (n >= MAX_CUTS - 1 && L->st == OK)
        L->st = status_fail(ERR_INVALID,
                            "tiles: group=%lld cuts unit %d into more than %d pieces: give a larger one (--tiles group=N)",
                            (long long)L->s.group, unit, MAX_CUTS);
    qsort(cuts, (size_t)n, sizeof *cuts, compare_i64);
    for (int i = 0; i < n; i++)
        if (cuts[i] <= rows && (unique == 0 || cuts[unique - 1] != cuts[i]))
            cuts[unique++] = cuts[i];
    value_create_cuts(L, v, name, class, row_bytes, cuts, unique - 1, RES_DEVICE);
}

static void create_units(struct lowering *L)
{
    int64_t size = dtype_size(L->s.dtype);
    for (int u = 0; u < L->m->n_units; u++) {
        const struct model_unit *mu = &L->m->units[u];
        struct unit_values *v = &L->units[u];
        int64_t n = mu->trained_elements;
        unit_value(L, &v->param, u, "param", CLASS_PARAM, mu->elements, size, 0);
        unit_value(L, &v->m, u, "m", CLASS_OPTIM, n, 4, 0);
        unit_value(L, &v->v, u, "v", CLASS_OPTIM, n, 4, 0);
        unit_value(L, &v->grad, u, "grad", CLASS_GRAD, n, 4, 1);
        unit_value(L, &v->micro, u, "micro", CLASS_GRAD, n, 4, 1);
        unit_value(L, &v->master, u, "master", CLASS_OPTIM, L->s.dtype == F32 ? 0 : n, 4, 0);
        v->micro.full = 1;
        for (int i = 0; i < v->micro.n_tiles; i++)
            v->micro.tiles[i].residency = RES_NONE;
        home_create(L, &v->param, u, L->s.params);
        home_create(L, &v->master, u, L->s.optim);
        home_create(L, &v->m, u, L->s.optim);
        home_create(L, &v->v, u, L->s.optim);
        home_create(L, &v->grad, u, L->s.grads);
        v->target = &v->grad;
        v->first_sum = L->n_sums;
        for (int64_t a = 0; a < n; a = group_end(L, u, a))
            L->n_sums++;
    }
}

/* A persistent host buffer that the engine fills or reads. */
static int io_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_IO, rows, row_bytes, rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

static void create_io(struct lowering *L, struct io_buffers *io)
{
    int64_t S = L->s.seq_len;
    io->tokens = io_value(L, &L->tokens, "tokens", S, 4);
    io->targets = io_value(L, &L->targets, "targets", S, 4);
    io->positions = io_value(L, &L->positions, "positions", S, 4);
    io->lo = io_value(L, &L->lo, "lo", S, 4);
    io->hi = io_value(L, &L->hi, "hi", S, 4);
    io->inv_freq = io_value(L, &L->inv_freq, "inv_freq", L->m->config.head_dim / 2, 4);
    io->record = io_value(L, &L->record, "record", 1, sizeof(struct step_record));
    io->norm = io_value(L, &L->norm, "norm", 1, sizeof(struct norm_result));
    value_create(L, &L->loss, "loss", CLASS_IO, L->n_loss, 8, 1, RES_HOST);
    home_create(L, &L->loss, -1, RES_HOST);
    io->loss = L->loss.tiles ? L->loss.tiles[0].home.buffer : 0;
}

static void chunk_value(struct lowering *L, struct value *v, const char *name, int layer, int index, enum value_kind kind,
                        int64_t cols, enum dtype type, enum residency r, int full)
{
    char full_name[48];
    if (layer < 0)
        snprintf(full_name, sizeof full_name, "%s", name);
    else if (index < 0)
        snprintf(full_name, sizeof full_name, "layer%d.%s", layer, name);
    else
        snprintf(full_name, sizeof full_name, "layer%d.%s%d", layer, name, index);
    value_create(L, v, full_name, r == RES_NONE ? CLASS_WORK : CLASS_ACT, L->s.seq_len, cols * dtype_size(type), L->s.row_chunk,
                 r);
    v->layer = layer;
    v->index = index;
    v->kind = kind;
    v->full = full;
}

/* What may be recomputed: the first kept_chunks chunks keep it, the others do not. */
static void optional(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (i >= L->s.kept_chunks || !(L->role & ROLE_BACKWARD))
            v->tiles[i].residency = RES_NONE;
}

static void create_activations(struct lowering *L)
{
    const struct model_config *c = &L->m->config;
    enum dtype T = L->s.dtype;
    enum residency acts = L->s.acts, lasting = L->role & ROLE_BACKWARD ? acts : RES_NONE;
    int64_t q_cols = L->s.head_tile * c->head_dim, kv_cols = L->kv_heads_tile * c->head_dim;
    int gated = c->family == FAMILY_LLAMA;
    for (int l = 0; l <= (int)c->layers; l++)
        chunk_value(L, &L->x[l], "x", l, -1, VALUE_TEMP, c->dim, T, l < (int)c->layers ? acts : RES_NONE, 0);
    for (int l = 0; l < (int)c->layers; l++) {
        for (int t = 0; t < L->n_tiles_q; t++) {
            int i = l * L->n_tiles_q + t;
            char name[32];
            chunk_value(L, &L->q[i], "q", l, t, VALUE_Q, q_cols, T, acts, 1);
            optional(L, &L->q[i]);
            chunk_value(L, &L->o[i], "o", l, t, VALUE_TEMP, q_cols, T, acts, 1);
            snprintf(name, sizeof name, "layer%d.lse%d", l, t);
            value_create(L, &L->lse[i], name, CLASS_ACT, L->s.head_tile, L->s.seq_len * 4, L->s.head_tile, lasting);
        }
        for (int kt = 0; kt < L->n_tiles_kv; kt++) {
            int i = l * L->n_tiles_kv + kt;
            chunk_value(L, &L->k[i], "k", l, kt, VALUE_K, kv_cols, T, acts, 1);
            chunk_value(L, &L->v[i], "v", l, kt, VALUE_V, kv_cols, T, acts, 1);
            optional(L, &L->k[i]);
            optional(L, &L->v[i]);
        }
        chunk_value(L, &L->xmid[l], "xmid", l, -1, VALUE_XMID, c->dim, T, acts, 0);
        optional(L, &L->xmid[l]);
        chunk_value(L, &L->up[l], "up", l, -1, VALUE_UP, c->ffn, T, acts, 0);
        optional(L, &L->up[l]);
        if (gated) {
            chunk_value(L, &L->gate[l], "gate", l, -1, VALUE_GATE, c->ffn, T, acts, 0);
            optional(L, &L->gate[l]);
        }
    }
    chunk_value(L, &L->n1, "n1", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, 0);
    chunk_value(L, &L->n2, "n2", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, 0);
    chunk_value(L, &L->final_n, "final_n", -1, -1, VALUE_TEMP, c->dim, T, RES_NONE, 0);
    chunk_value(L, &L->acc, "acc", -1, -1, VALUE_TEMP, c->dim, F32, RES_NONE, 0);
    chunk_value(L, &L->act, "act", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, 0);
    chunk_value(L, &L->dact, "dact", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, 0);
    chunk_value(L, &L->dgate, "dgate", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, 0);
    chunk_value(L, &L->dup, "dup", -1, -1, VALUE_TEMP, c->ffn, T, RES_NONE, 0);
    chunk_value(L, &L->dx, "dx", -1, -1, VALUE_TEMP, c->dim, T, acts, 0);
    value_create(L, &L->dn, "dn", CLASS_WORK, L->s.seq_len, c->dim * 4, L->s.loss_tile, RES_NONE);
    value_create(L, &L->logits, "logits", CLASS_WORK, L->s.seq_len, c->vocab * 4, L->s.loss_tile, RES_NONE);
    for (int t = 0; t < L->n_tiles_q; t++) {
        char name[32];
        snprintf(name, sizeof name, "do%d", t);
        chunk_value(L, &L->d_o[t], name, -1, -1, VALUE_TEMP, q_cols, T, RES_NONE, 1);
        snprintf(name, sizeof name, "dq%d", t);
        chunk_value(L, &L->dq[t], name, -1, -1, VALUE_TEMP, q_cols, F32, acts, 1);
    }
    for (int kt = 0; kt < L->n_tiles_kv; kt++) {
        char name[32];
        snprintf(name, sizeof name, "dk%d", kt);
        chunk_value(L, &L->dk[kt], name, -1, -1, VALUE_TEMP, kv_cols, F32, acts, 1);
        snprintf(name, sizeof name, "dv%d", kt);
        chunk_value(L, &L->dv[kt], name, -1, -1, VALUE_TEMP, kv_cols, F32, acts, 1);
    }
}

static struct value *values_alloc(struct lowering *L, int n)
{
    struct value *v = sys_calloc((size_t)(n > 0 ? n : 1), sizeof *v);
    if (!v && L->st == OK)
        L->st = status_fail(ERR_NOMEM, "out of memory while planning");
    return v;
}

static void allocate(struct lowering *L)
{
    int layers = (int)L->m->config.layers;
    L->units = sys_calloc((size_t)L->m->n_units, sizeof *L->units);
    if (!L->units)
        L->st = status_fail(ERR_NOMEM, "out of memory while planning");
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
    L->dq = values_alloc(L, L->n_tiles_q);
    L->dk = values_alloc(L, L->n_tiles_kv);
    L->dv = values_alloc(L, L->n_tiles_kv);
}

static void destroy_values(struct value *v, int n)
{
    for (int i = 0; v && i < n; i++)
        value_destroy(&v[i]);
    free(v);
}

static void release(struct lowering *L)
{
    int layers = (int)L->m->config.layers;
    for (int u = 0; L->units && u < L->m->n_units; u++) {
        struct value *all[] = {&L->units[u].param, &L->units[u].master, &L->units[u].m,
                               &L->units[u].v,     &L->units[u].grad,   &L->units[u].micro};
        for (int i = 0; i < 6; i++)
            value_destroy(all[i]);
    }
    free(L->units);
    destroy_values(L->x, layers + 1);
    destroy_values(L->q, layers * L->n_tiles_q);
    destroy_values(L->o, layers * L->n_tiles_q);
    destroy_values(L->lse, layers * L->n_tiles_q);
    destroy_values(L->k, layers * L->n_tiles_kv);
    destroy_values(L->v, layers * L->n_tiles_kv);
    destroy_values(L->xmid, layers);
    destroy_values(L->gate, layers);
    destroy_values(L->up, layers);
    destroy_values(L->d_o, L->n_tiles_q);
    destroy_values(L->dq, L->n_tiles_q);
    destroy_values(L->dk, L->n_tiles_kv);
    destroy_values(L->dv, L->n_tiles_kv);
    struct value *single[] = {&L->tokens, &L->targets, &L->positions, &L->lo, &L->hi,      &L->inv_freq, &L->record,
                              &L->norm,   &L->loss,    &L->sums,      &L->n1, &L->n2,      &L->acc,      &L->act,
                              &L->dact,   &L->dgate,   &L->dup,       &L->dn, &L->final_n, &L->logits,   &L->dx};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        value_destroy(single[i]);
}

static void bind_persistent(struct lowering *L, int end)
{
    int grads_live =
        end ? (L->role & ROLE_BACKWARD) != 0 : (L->role & ROLE_UPDATE) || ((L->role & ROLE_BACKWARD) && !(L->role & ROLE_FIRST));
    void (*live)(struct lowering *, struct value *) = end ? live_out : live_in;
    for (int u = 0; u < L->m->n_units; u++) {
        struct unit_values *v = &L->units[u];
        live(L, &v->param);
        live(L, &v->master);
        live(L, &v->m);
        live(L, &v->v);
        if (grads_live)
            live(L, &v->grad);
    }
    if (end) {
        if (L->role & ROLE_FORWARD)
            live(L, &L->loss);
        if (L->role & ROLE_LAST)
            live(L, &L->norm);
        return;
    }
    struct value *inputs[] = {&L->tokens, &L->targets, &L->positions, &L->lo, &L->hi, &L->inv_freq, &L->record};
    for (int i = 0; i < 7; i++)
        live(L, inputs[i]);
    if (L->role & ROLE_UPDATE)
        live(L, &L->norm);
}

static void load_inputs(struct lowering *L)
{
    L->phase = 'i';
    L->layer = -1;
    if (L->role != ROLE_UPDATE || !L->s.update_on_host)
        value_get(L, &L->record, 0);
    if (!(L->role & ROLE_FORWARD))
        return;
    value_get(L, &L->tokens, 0);
    value_get(L, &L->targets, 0);
    value_get(L, &L->positions, 0);
    value_get(L, &L->lo, 0);
    value_get(L, &L->hi, 0);
    if (L->m->pos_embed < 0)
        value_get(L, &L->inv_freq, 0);
}

enum status lower_program(const struct model *m, const struct strategy *s, int role, struct io_buffers *io, struct program **out)
{
    static const char *const names[] = {"", "update ", "forward ", "update+forward "};
    struct lowering L = {.m = m, .s = *s, .role = role};
    char name[32];
    snprintf(name, sizeof name, "%s%s%s%s", names[role & 3], role & ROLE_BACKWARD ? "backward" : "",
             role & ROLE_FIRST ? " first" : "", role & ROLE_LAST ? " last" : "");
    TRY(program_create(name, &L.p));
    L.p->discrete = s->discrete;
    int g = (int)(m->config.heads / m->config.kv_heads);
    L.n_chunks = (int)ceil_div(s->seq_len, s->row_chunk);
    L.n_tiles_q = (int)(m->config.heads / s->head_tile);
    L.kv_heads_tile = s->head_tile >= g ? s->head_tile / g : 1;
    L.n_tiles_kv = (int)(m->config.kv_heads / L.kv_heads_tile);
    L.q_per_kv = L.n_tiles_q / L.n_tiles_kv;
    L.n_loss = ceil_div(s->seq_len, s->loss_tile);
    allocate(&L);
    if (L.st == OK)
        create_units(&L);
    if (L.st == OK)
        create_io(&L, io);
    L.p->n_persistent = L.p->n_buffers;
    if (L.st == OK)
        create_activations(&L);
    value_create(&L, &L.sums, "sums", CLASS_WORK, L.n_sums > 0 ? L.n_sums : 1, 8, 1, RES_DEVICE);
    L.sums.full = 1;
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
        value_put_home(&L, &L.loss, 0, L.loss.rows, TIER_DEVICE);
    if (L.st == OK && (role & ROLE_LAST))
        lower_norm(&L);
    if (L.st == OK)
        bind_persistent(&L, 1);
    if (L.st == OK && L.p->out_of_memory)
        L.st = status_fail(ERR_NOMEM, "out of memory while planning");
    program_number(L.p);
    release(&L);
    if (L.st != OK) {
        program_destroy(L.p);
        return L.st;
    }
    *out = L.p;
    return OK;
}
