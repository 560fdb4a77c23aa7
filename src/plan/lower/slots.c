/* Slots of experts as values, and the instruction that fills them. */
#include "plan/lower/slots.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"

#define DEV TIER_DEVICE

enum { STACKS = 2 }; /* stacks of a layer's experts */

static int64_t elements_of_expert(const struct model_param *p)
{
    return p->elements / p->experts;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

int64_t slots_piece(const struct model *m)
{
    int64_t piece = 0;
    for (int u = model_head_unit(m) + 1; u < m->n_units; u++) {
        const struct model_unit *unit = &m->units[u];
        if (!model_unit_has_experts(m, u))
            continue;
        if (unit->n_params > STACKS || unit->packed_bytes > 0)
            return 0;
        for (int i = unit->first_param; i < unit->first_param + unit->n_params; i++) {
            if (!model_param_is_stack(&m->params[i]) || m->params[i].adapter)
                return 0;
            piece = common_divisor(piece, elements_of_expert(&m->params[i]));
        }
    }
    return piece;
}

/* Returns the elements of all of the unit's slots, or of those of the stacks before `param`. */
static int64_t elements_before(const struct lowering *L, int unit, int param)
{
    const struct model_unit *u = &L->m->units[unit];
    int64_t n = 0;
    for (int i = u->first_param; i < u->first_param + u->n_params && i != param; i++)
        n += L->s.expert_slots * elements_of_expert(param_of(L, i));
    return n;
}

int64_t slots_elements(const struct lowering *L, int unit)
{
    return elements_before(L, unit, -1);
}

int slots_serve(const struct lowering *L, int unit)
{
    const struct model_config *c = &L->m->config;
    return L->units[unit].kept.n_tiles > 0 && min_i64(c->experts, L->s.rows * c->experts_used) <= L->s.expert_slots;
}

int32_t slots_experts(const struct lowering *L, int unit, int64_t experts)
{
    return (int32_t)(slots_serve(L, unit) ? L->s.expert_slots : experts);
}

void slots_fill(struct lowering *L, int unit, struct value *ids, struct value *slots, int chunk)
{
    struct unit_values *u = &L->units[unit];
    const struct model_unit *mu = &L->m->units[unit];
    const enum tier home = residency_tier(u->param.tiles[0].residency);
    const struct tile *t = &ids->tiles[chunk];
    struct op_attrs *a = emit(L, OP_EXPERTS_KEEP, home == TIER_NVME ? LANE_READ : LANE_H2D);
    a->keep.rows = (t->row1 - t->row0) * L->m->config.experts_used;
    a->keep.experts = (int32_t)L->m->config.experts;
    a->keep.slots = (int32_t)L->s.expert_slots;
    for (int i = 0; i < mu->n_params; i++)
        a->keep.bytes[i] = elements_of_expert(param_of(L, mu->first_param + i)) * u->param.row_bytes;
    a->keep.extent = home == TIER_NVME ? L->s.key.group * u->param.row_bytes : 0;
    arg_update(L, 0, &u->kept, 0, u->kept.rows, DEV);
    arg_update(L, 1, &u->kept_table, 0, u->kept_table.rows, DEV);
    value_new(L, slots, chunk);
    arg_write(L, 2, slots, t->row0, t->row1, DEV);
    arg_read(L, 3, &u->param, 0, u->param.rows, (int)home);
    arg_read(L, 4, ids, t->row0, t->row1, DEV);
    emit_done(L, 0);
}

void arg_slots(struct lowering *L, int arg, int param)
{
    const struct model_param *p = param_of(L, param);
    const int64_t first = elements_before(L, p->unit, param);
    arg_read(L, arg, &L->units[p->unit].kept, first, first + L->s.expert_slots * elements_of_expert(p), DEV);
}
