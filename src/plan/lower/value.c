/* Values: tiles, copies, fetches, write-backs, and the emission of instructions over them. */
#include "plan/lower/lowering.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static const struct place nowhere = {-1, 0};

static void fail_memory(struct lowering *L)
{
    if (L->st == OK)
        L->st = status_fail(ERR_NOMEM, "out of memory while planning");
}

void value_create_cuts(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t row_bytes,
                       const int64_t *cuts, int n_cuts, enum residency r)
{
    memset(v, 0, sizeof *v);
    v->class = class;
    v->rows = cuts[n_cuts];
    v->row_bytes = row_bytes;
    v->full_buffer = -1;
    v->tensor = program_add_tensor(L->p, name, class, v->rows, row_bytes);
    v->tiles = sys_calloc((size_t)n_cuts + 1, sizeof *v->tiles);
    if (!v->tiles) {
        fail_memory(L);
        return;
    }
    v->n_tiles = n_cuts;
    for (int i = 0; i < n_cuts; i++) {
        struct tile *t = &v->tiles[i];
        t->row0 = cuts[i];
        t->row1 = cuts[i + 1];
        t->residency = r;
        t->home = nowhere;
        for (int k = 0; k < PLACES; k++)
            t->place[k] = nowhere;
    }
}

void value_create(struct lowering *L, struct value *v, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes,
                  int64_t cut, enum residency r)
{
    int n = (int)ceil_div(rows, cut);
    int64_t *cuts = sys_malloc(sizeof *cuts * (size_t)(n + 1));
    if (!cuts) {
        memset(v, 0, sizeof *v);
        fail_memory(L);
        return;
    }
    for (int i = 0; i <= n; i++)
        cuts[i] = min_i64(i * cut, rows);
    value_create_cuts(L, v, name, class, row_bytes, cuts, n, r);
    free(cuts);
}

void value_destroy(struct value *v)
{
    free(v->tiles);
    v->tiles = NULL;
}

int value_tile_at(const struct value *v, int64_t row)
{
    int lo = 0, hi = v->n_tiles - 1;
    if (hi <= 0)
        return 0;
    int64_t guess = row / v->tiles[0].row1; /* most are of one size */
    if (guess <= hi && v->tiles[guess].row0 <= row && row < v->tiles[guess].row1)
        return (int)guess;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (v->tiles[mid].row0 <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

int buffer_new(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class)
{
    return program_add_buffer(L->p, tier, bytes, class, 0);
}

static int64_t tile_bytes(const struct value *v, int tile)
{
    return (v->tiles[tile].row1 - v->tiles[tile].row0) * v->row_bytes;
}

int value_on_device(const struct value *v, int tile)
{
    return v->tiles[tile].place[TIER_DEVICE].buffer >= 0;
}

/* Where the next device copy of the tile goes. */
static struct place device_place(struct lowering *L, struct value *v, int tile)
{
    if (v->full_buffer >= 0)
        return (struct place){v->full_buffer, v->tiles[tile].row0 * v->row_bytes};
    return (struct place){buffer_new(L, TIER_DEVICE, tile_bytes(v, tile), v->class), 0};
}

void value_new(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    for (int k = 0; k < PLACES; k++)
        t->place[k] = nowhere;
    t->place[TIER_DEVICE] = device_place(L, v, tile);
}

int value_where(const struct value *v, int64_t row)
{
    const struct tile *t = &v->tiles[value_tile_at(v, row)];
    for (int k = 0; k < TIERS; k++)
        if (t->place[k].buffer >= 0)
            return k;
    return -1;
}

static enum lane copy_lane(int from, int to)
{
    if (from == TIER_NVME)
        return LANE_READ;
    if (to == TIER_NVME)
        return LANE_WRITE;
    if (from == TIER_HOST)
        return to == TIER_HOST ? LANE_HOST : LANE_H2D;
    return to == TIER_HOST ? LANE_D2H : LANE_COMPUTE;
}

/* One copy instruction for whole tiles [row0, row1) whose copies in `from` are contiguous. */
static void copy_once(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from, int to, int depth)
{
    struct op_attrs *a = emit(L, OP_COPY, copy_lane(from, to));
    a->copy.bytes = (row1 - row0) * v->row_bytes;
    L->p->instrs[L->p->n_instrs - 1].depth = (uint8_t)depth;
    arg_read(L, 0, v, row0, row1, from);
    for (int i = value_tile_at(v, row0); i < v->n_tiles && v->tiles[i].row0 < row1; i++) {
        struct tile *t = &v->tiles[i];
        program_add_operand(L->p, (struct operand){.arg = 1,
                                                   .access = ACCESS_WRITE,
                                                   .buffer = t->place[to].buffer,
                                                   .tensor = v->tensor,
                                                   .version = t->version,
                                                   .offset = t->place[to].offset,
                                                   .bytes = tile_bytes(v, i),
                                                   .row0 = t->row0});
    }
    emit_done(L, 0);
}

static void set_place(struct value *v, int64_t row0, int64_t row1, int place, int buffer, int64_t offset)
{
    for (int i = value_tile_at(v, row0); i < v->n_tiles && v->tiles[i].row0 < row1; i++)
        v->tiles[i].place[place] =
            buffer < 0 ? nowhere : (struct place){buffer, offset + (v->tiles[i].row0 - row0) * v->row_bytes};
}

void value_copy(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from, int to, int buffer, int64_t offset,
                int depth)
{
    int by_slot = L->s.discrete && ((from == TIER_NVME && to == TIER_DEVICE) || (from == TIER_DEVICE && to == TIER_NVME));
    if (by_slot) {
        int slot = buffer_new(L, TIER_HOST, (row1 - row0) * v->row_bytes, v->class);
        set_place(v, row0, row1, TIER_HOST, slot, 0);
        copy_once(L, v, row0, row1, from, TIER_HOST, depth ? depth + 1 : 0);
        set_place(v, row0, row1, to, buffer, offset);
        copy_once(L, v, row0, row1, TIER_HOST, to, depth);
        if (!v->staged)
            set_place(v, row0, row1, TIER_HOST, -1, 0);
    } else {
        set_place(v, row0, row1, to, buffer, offset);
        copy_once(L, v, row0, row1, from, to, depth);
    }
}

static void copy_keep(struct lowering *L, struct value *v, int tile, int from, int to, struct place at)
{
    v->tiles[tile].place[to] = at;
    copy_once(L, v, v->tiles[tile].row0, v->tiles[tile].row1, from, to, 0);
}

void value_get(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    if (value_on_device(v, tile))
        return;
    if (t->place[PLACE_KEEP].buffer >= 0) {
        if (v->full_buffer >= 0)
            copy_keep(L, v, tile, PLACE_KEEP, TIER_DEVICE, device_place(L, v, tile));
        else
            t->place[TIER_DEVICE] = t->place[PLACE_KEEP];
        return;
    }
    for (int from = TIER_HOST; from < TIERS; from++)
        if (t->place[from].buffer >= 0) {
            struct place at = device_place(L, v, tile);
            value_copy(L, v, t->row0, t->row1, from, TIER_DEVICE, at.buffer, at.offset, 1);
            return;
        }
    lower_value_produce(L, v, tile);
    value_put(L, v, tile);
}

/* All tiles live on the device: the full buffer itself is their home. */
static int lives_full(const struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        if (v->tiles[i].residency != RES_DEVICE)
            return 0;
    return v->full;
}

void value_put(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    switch (t->residency) {
    case RES_NONE:
        return;
    case RES_DEVICE:
        if (v->full_buffer >= 0 && !lives_full(v) && t->place[PLACE_KEEP].buffer < 0)
            copy_keep(L, v, tile, TIER_DEVICE, PLACE_KEEP,
                      (struct place){buffer_new(L, TIER_DEVICE, tile_bytes(v, tile), v->class), 0});
        return;
    case RES_HOST:
    case RES_NVME: {
        int to = t->residency == RES_HOST || (v->brief && v->staged) ? TIER_HOST : TIER_NVME;
        if (t->place[to].buffer < 0 && !(v->brief && v->lingers))
            value_copy(L, v, t->row0, t->row1, TIER_DEVICE, to, buffer_new(L, (enum tier)to, tile_bytes(v, tile), v->class), 0,
                       0);
        return;
    }
    }
}

void value_drop(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    (void)L;
    if (t->residency != RES_DEVICE || t->place[PLACE_KEEP].buffer >= 0)
        t->place[TIER_DEVICE] = nowhere;
}

void value_forget(struct value *v, int tile)
{
    for (int k = 0; k < PLACES; k++)
        v->tiles[tile].place[k] = nowhere;
}

void value_pause(struct lowering *L, struct value *v, int tile)
{
    if (!v->lingers)
        value_drop(L, v, tile);
}

void value_leave(struct lowering *L, struct value *v)
{
    for (int i = 0; v->staged && i < v->n_tiles; i++)
        v->tiles[i].place[TIER_HOST] = nowhere;
    if (v->lingers)
        value_drop_all(L, v);
    v->lingers = 0;
}

void value_drop_all(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        value_drop(L, v, i);
}

void value_reset_full(struct value *v)
{
    v->full_buffer = -1;
}

void value_open_full(struct lowering *L, struct value *v)
{
    if (v->full_buffer < 0)
        v->full_buffer = buffer_new(L, TIER_DEVICE, v->rows * v->row_bytes, v->class);
}

void value_close_full(struct lowering *L, struct value *v)
{
    for (int i = 0; i < v->n_tiles; i++)
        value_pause(L, v, i);
    if (!lives_full(v))
        v->full_buffer = -1;
}

void value_bring(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int tier, int depth)
{
    int present = 1, first = value_tile_at(v, row0);
    for (int i = first; i < v->n_tiles && v->tiles[i].row0 < row1; i++)
        present &= v->tiles[i].place[tier].buffer >= 0;
    if (present)
        return;
    int from = value_where(v, row0);
    struct place at = {v->full_buffer, row0 * v->row_bytes};
    if (tier != TIER_DEVICE || v->full_buffer < 0)
        at = (struct place){buffer_new(L, (enum tier)tier, (row1 - row0) * v->row_bytes, v->class), 0};
    value_copy(L, v, row0, row1, from, tier, at.buffer, at.offset, depth);
}

static enum tier home_tier(enum residency r)
{
    return r == RES_HOST ? TIER_HOST : r == RES_NVME ? TIER_NVME : TIER_DEVICE;
}

void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from)
{
    const struct tile *t = &v->tiles[value_tile_at(v, row0)];
    enum tier home = home_tier(t->residency);
    if (t->place[home].buffer != t->home.buffer)
        value_copy(L, v, row0, row1, from, (int)home, t->home.buffer, t->home.offset, 0);
}

void value_keep_home(struct value *v, int64_t row0, int64_t row1)
{
    for (int i = value_tile_at(v, row0); i < v->n_tiles && v->tiles[i].row0 < row1; i++) {
        struct tile *t = &v->tiles[i];
        for (int k = 0; k < PLACES; k++)
            if (k != (int)home_tier(t->residency) || t->place[k].buffer != t->home.buffer)
                t->place[k] = nowhere;
    }
}

struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane)
{
    int i = program_add_instr(L->p, op, lane);
    L->p->instrs[i].phase = L->phase;
    L->p->instrs[i].layer = (int16_t)L->layer;
    return &program_call(L->p, &L->p->instrs[i])->attrs;
}

/* The tile's part [row0, row1) as an operand: that of the tile's copy in `place`. */
struct tile_part {
    int buffer, version;
    int64_t offset, row0, row1;
};

static struct tile_part part_of(const struct value *v, const struct tile *t, int64_t row0, int64_t row1, int place)
{
    int64_t a = max_i64(row0, t->row0), b = min_i64(row1, t->row1);
    return (struct tile_part){t->place[place].buffer, t->version, t->place[place].offset + (a - t->row0) * v->row_bytes, a, b};
}

static void add_part(struct lowering *L, int arg, enum access access, const struct value *v, const struct tile_part *x, int place)
{
    if (x->buffer < 0 && L->st == OK)
        L->st = status_fail(ERR_CORRUPT, "planner: %s of %s (rows %lld to %lld, layer %d, phase %c) has no copy in %s",
                            op_name(L->p->instrs[L->p->n_instrs - 1].op), L->p->tensors[v->tensor].name, (long long)x->row0,
                            (long long)x->row1, L->layer, L->phase, place < TIERS ? tier_name((enum tier)place) : "keep");
    if (L->st == OK)
        program_add_operand(L->p, (struct operand){.arg = (uint32_t)arg,
                                                   .access = access,
                                                   .buffer = x->buffer,
                                                   .tensor = v->tensor,
                                                   .offset = x->offset,
                                                   .bytes = (x->row1 - x->row0) * v->row_bytes,
                                                   .row0 = x->row0,
                                                   .version = (uint32_t)(x->version + (access == ACCESS_WRITE))});
}

/* Tiles that continue one another in a buffer are one operand: most arguments have many (groups of a matrix, chunks of a full
 * value). */
static void arg_rows(struct lowering *L, int arg, enum access access, struct value *v, int64_t row0, int64_t row1, int place)
{
    int i = value_tile_at(v, row0);
    if (i >= v->n_tiles || v->tiles[i].row0 >= row1)
        return;
    struct tile_part all = part_of(v, &v->tiles[i], row0, row1, place);
    for (;;) {
        struct tile *t = &v->tiles[i];
        if (access & ACCESS_WRITE) {
            t->version++;
            for (int k = 0; k < PLACES; k++)
                if (k != place)
                    t->place[k] = nowhere;
        }
        if (++i >= v->n_tiles || v->tiles[i].row0 >= row1)
            break;
        struct tile_part next = part_of(v, &v->tiles[i], row0, row1, place);
        if (next.buffer == all.buffer && next.version == all.version &&
            next.offset - all.offset == (next.row0 - all.row0) * v->row_bytes) {
            all.row1 = next.row1;
        } else {
            add_part(L, arg, access, v, &all, place);
            all = next;
        }
    }
    add_part(L, arg, access, v, &all, place);
}

void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_READ, v, row0, row1, place);
}

void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_WRITE, v, row0, row1, place);
}

void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_UPDATE, v, row0, row1, place);
}

void arg_scratch(struct lowering *L, int arg, int64_t bytes)
{
    if (bytes <= 0 || L->st != OK)
        return;
    int b = buffer_new(L, TIER_DEVICE, bytes, CLASS_WORK);
    program_add_operand(
        L->p, (struct operand){.arg = (uint32_t)arg, .access = ACCESS_WRITE, .buffer = b, .tensor = -1, .bytes = bytes});
}

/* Bytes that a rank sends to others. */
static int64_t comm_bytes(enum op_kind op, const struct op_attrs *a, int members)
{
    int64_t share = a->comm.share * a->comm.element, wire = dtype_size((enum dtype)a->comm.type);
    switch (op) {
    case OP_ALL_GATHER:
        return (members - 1) * share;
    case OP_REDUCE_SCATTER:
        return (members - 1) * a->comm.share * wire;
    case OP_ALL_REDUCE:
        return (members - 1) * (a->comm.share * wire + share);
    case OP_ALL_TO_ALL:
        return (members - 1) * share;
    default:
        return a->comm.n * a->comm.element;
    }
}

static int64_t touched_bytes(const struct program *p, const struct instr *in)
{
    int64_t bytes = 0;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (o->tensor >= 0)
            bytes += o->access == ACCESS_UPDATE ? 2 * o->bytes : o->bytes;
    }
    return bytes;
}

void emit_done(struct lowering *L, double pairs)
{
    struct instr *in = &L->p->instrs[L->p->n_instrs - 1];
    struct op_call *c = program_call(L->p, in);
    int members = L->p->group_size[in->lane];
    arg_scratch(L, op_arg_count(in->op) - 1, L->s.target->workspace(L->s.target, in->op, &c->attrs, members));
    c->flops = op_flops(in->op, &c->attrs, pairs);
    c->bytes = lane_is_comm(in->lane) ? comm_bytes(in->op, &c->attrs, members)
               : in->op == OP_COPY    ? c->attrs.copy.bytes
                                      : touched_bytes(L->p, in);
    program_share_call(L->p);
}
