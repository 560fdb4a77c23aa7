/* Visits: copies between tiers, fetches, write-backs. */
#include "plan/lower/visit.h"

#include "plan/lower/emit.h"
#include "plan/lower/lowering.h"

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

/* Emits one copy instruction for whole tiles [row0, row1) whose copies in `from` are contiguous. */
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
                                                   .bytes = value_tile_bytes(v, i),
                                                   .row0 = t->row0});
    }
    emit_done(L, 0);
}

static void set_place(struct value *v, int64_t row0, int64_t row1, int place, int buffer, int64_t offset)
{
    v->changes++;
    for (int i = value_tile_at(v, row0); i < v->n_tiles && v->tiles[i].row0 < row1; i++)
        v->tiles[i].place[place] =
            buffer < 0 ? NOWHERE : (struct place){buffer, offset + (v->tiles[i].row0 - row0) * v->row_bytes};
}

/* Copies rows [row0, row1) (whole tiles) between tiers and sets their place in the target. The copy goes by way of a host slot if
 * the device cannot reach the drive. */
static void value_copy(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from, int to, int buffer,
                       int64_t offset, int depth)
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
    v->changes++;
    copy_once(L, v, v->tiles[tile].row0, v->tiles[tile].row1, from, to, 0);
}

void value_get(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    if (value_on_device(v, tile))
        return;
    if (t->place[PLACE_KEEP].buffer >= 0) {
        if (v->full_buffer >= 0)
            copy_keep(L, v, tile, PLACE_KEEP, TIER_DEVICE, value_device_place(L, v, tile));
        else
            t->place[TIER_DEVICE] = t->place[PLACE_KEEP];
        v->changes++;
        return;
    }
    for (int from = TIER_HOST; from < TIERS; from++)
        if (t->place[from].buffer >= 0) {
            struct place at = value_device_place(L, v, tile);
            value_copy(L, v, t->row0, t->row1, from, TIER_DEVICE, at.buffer, at.offset, 1);
            return;
        }
    if (v->produce)
        v->produce(L, v, tile);
    else if (L->st == OK)
        L->st = status_fail(ERR_CORRUPT, "planner: %s, rows from %lld, unit %d, phase %c, is needed but nowhere",
                            L->p->tensors[v->tensor].name, (long long)t->row0, L->unit, phase_letter(L->phase));
    value_put(L, v, tile);
}

void value_put(struct lowering *L, struct value *v, int tile)
{
    struct tile *t = &v->tiles[tile];
    switch (t->residency) {
    case RES_NONE:
        return;
    case RES_DEVICE:
        if (v->full_buffer >= 0 && !value_lives_full(v) && t->place[PLACE_KEEP].buffer < 0)
            copy_keep(L, v, tile, TIER_DEVICE, PLACE_KEEP,
                      (struct place){buffer_new(L, TIER_DEVICE, value_tile_bytes(v, tile), v->class), 0});
        return;
    case RES_HOST:
    case RES_NVME: {
        int to = t->residency == RES_HOST || (v->brief && v->staged) ? TIER_HOST : TIER_NVME;
        if (t->place[to].buffer < 0 && !(v->brief && v->lingers))
            value_copy(L, v, t->row0, t->row1, TIER_DEVICE, to, buffer_new(L, (enum tier)to, value_tile_bytes(v, tile), v->class),
                       0, 0);
        return;
    }
    }
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

void value_put_home(struct lowering *L, struct value *v, int64_t row0, int64_t row1, int from)
{
    const struct tile *t = &v->tiles[value_tile_at(v, row0)];
    enum tier home = residency_tier(t->residency);
    if (t->place[home].buffer != t->home.buffer)
        value_copy(L, v, row0, row1, from, (int)home, t->home.buffer, t->home.offset, 0);
}
