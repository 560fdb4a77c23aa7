/* Slots of experts as values, and the instructions that fill them. */
#include "plan/lower/slots.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"

#define DEV TIER_DEVICE

/* Returns the part of its unit that a parameter lies in. */
static enum slot_part part_of(const struct model_param *p)
{
    return p->packed_bytes > 0 ? SLOTS_PACKED : p->trained ? SLOTS_TRAINED : SLOTS_FROZEN;
}

/* Returns the elements of an expert's share of a parameter; of a quantised one bytes. */
static int64_t size_of_expert(const struct model_param *p)
{
    return (p->packed_bytes > 0 ? p->packed_bytes : p->elements) / p->experts;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

int slots_suit(const struct model *m)
{
    for (int u = model_head_unit(m) + 1; u < m->n_units; u++) {
        int pieces[SLOT_PARTS] = {0};
        if (!model_unit_has_experts(m, u))
            continue;
        for (int i = m->units[u].first_param; i < m->units[u].first_param + m->units[u].n_params; i++) {
            const struct model_param *p = &m->params[i];
            if (p->experts != m->config.experts || size_of_expert(p) > INT32_MAX / dtype_size(F32) ||
                ++pieces[part_of(p)] > KEEP_PIECES)
                return 0;
        }
    }
    return 1;
}

/* Returns the elements of which each matrix of an expert is a whole multiple; 0: some matrices are no elements. */
static int64_t whole_piece(const struct model *m)
{
    int64_t piece = 0;
    for (int u = model_head_unit(m) + 1; u < m->n_units; u++)
        for (int i = m->units[u].first_param; model_unit_has_experts(m, u) && i < m->units[u].first_param + m->units[u].n_params;
             i++) {
            if (m->params[i].packed_bytes > 0)
                return 0;
            piece = common_divisor(piece, size_of_expert(&m->params[i]));
        }
    return piece;
}

int64_t slots_group(const struct model *m, enum dtype type)
{
    /* At most PIECES extents a unit. A matrix that ends within an extent costs at most two of the least size beyond its own bytes. */
    enum { LEAST = 256 << 10, PIECES = 2048 };
    const int64_t piece = whole_piece(m), size = dtype_size(type);
    int64_t most = 0;
    for (int u = 0; u < m->n_units; u++)
        most = max_i64(most, max_i64(m->units[u].elements * size, m->units[u].packed_bytes));
    if (piece * size % BUFFER_ALIGN == 0 && piece > 0 && most / (piece * size) < PIECES)
        return piece;
    return max_i64(LEAST, round_up(ceil_div(most, PIECES - 1), BUFFER_ALIGN)) / size;
}

/* Returns the elements, or bytes, of a part of all slots: of those stacks that lie before `param`, or of all (-1). */
static int64_t size_before(const struct lowering *L, int unit, enum slot_part part, int param)
{
    const struct model_unit *u = &L->m->units[unit];
    int64_t n = 0;
    for (int i = u->first_param; i < u->first_param + u->n_params && i != param; i++)
        n += part_of(param_of(L, i)) == part ? L->s.expert_slots * size_of_expert(param_of(L, i)) : 0;
    return n;
}

int64_t slots_size(const struct lowering *L, int unit, enum slot_part part)
{
    return size_before(L, unit, part, -1);
}

static int has_slots(const struct lowering *L, int unit)
{
    for (int part = 0; part < SLOT_PARTS; part++)
        if (L->units[unit].kept[part].n_tiles > 0)
            return 1;
    return 0;
}

int slots_serve(const struct lowering *L, int unit)
{
    const struct model_config *c = &L->m->config;
    return has_slots(L, unit) && min_i64(c->experts, L->s.rows * c->experts_used) <= L->s.expert_slots;
}

int32_t slots_experts(const struct lowering *L, int unit, int64_t experts)
{
    return (int32_t)(slots_serve(L, unit) ? L->s.expert_slots : experts);
}

/* Brings a part of the experts of a chunk's ids into slots. */
static void fill_part(struct lowering *L, int unit, enum slot_part part, struct value *ids, struct value *slots, int chunk)
{
    struct unit_values *u = &L->units[unit];
    const struct model_unit *mu = &L->m->units[unit];
    struct value *home = part == SLOTS_PACKED ? &u->packed : &u->param;
    const enum tier tier = residency_tier(home->tiles[0].residency);
    const struct tile *t = &ids->tiles[chunk];
    const int64_t first = part == SLOTS_FROZEN ? mu->trained_elements : 0;
    struct op_attrs *a = emit(L, OP_EXPERTS_KEEP, tier == TIER_NVME ? LANE_READ : LANE_H2D);
    a->keep.rows = (t->row1 - t->row0) * L->m->config.experts_used;
    a->keep.experts = (int32_t)L->m->config.experts;
    a->keep.slots = (int32_t)L->s.expert_slots;
    for (int i = mu->first_param, n = 0; i < mu->first_param + mu->n_params; i++)
        if (part_of(param_of(L, i)) == part)
            a->keep.bytes[n++] = (int32_t)(size_of_expert(param_of(L, i)) * home->row_bytes);
    a->keep.extent = tier == TIER_NVME ? L->s.key.group * dtype_size(L->s.key.dtype) : 0;
    arg_update(L, 0, &u->kept[part], 0, u->kept[part].rows, DEV);
    arg_update(L, 1, &u->kept_table[part], 0, u->kept_table[part].rows, DEV);
    arg_write(L, 2, slots, t->row0, t->row1, DEV);
    arg_read(L, 3, home, first, part == SLOTS_TRAINED ? mu->trained_elements : home->rows, (int)tier);
    arg_read(L, 4, ids, t->row0, t->row1, DEV);
    emit_done(L, 0);
}

void slots_fill(struct lowering *L, int unit, struct value *ids, struct value *slots, int chunk)
{
    value_new(L, slots, chunk);
    for (int part = 0; part < SLOT_PARTS; part++) /* the same ids choose the same slots in all parts */
        if (L->units[unit].kept[part].n_tiles > 0)
            fill_part(L, unit, (enum slot_part)part, ids, slots, chunk);
}

void arg_slots(struct lowering *L, int arg, int param, int64_t first, int64_t n)
{
    const struct model_param *p = param_of(L, param);
    const int64_t begin = size_before(L, p->unit, part_of(p), param) + first;
    arg_read(L, arg, &L->units[p->unit].kept[part_of(p)], begin, begin + n, DEV);
}

void arg_experts(struct lowering *L, int arg, int param, int64_t first, int64_t count)
{
    const struct model_param *p = param_of(L, param);
    const int64_t each = size_of_expert(p);
    (slots_serve(L, p->unit) ? arg_slots : arg_param_part)(L, arg, param, first * each, count * each);
}
