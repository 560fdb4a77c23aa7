/* Units: fetching parameters, the optimizer update, and what happens to a finished gradient. */
#include "plan/lower.h"

#define DEV TIER_DEVICE

static struct value *master_of(struct lowering *L, int unit)
{
    return L->s.dtype == F32 ? &L->units[unit].param : &L->units[unit].master;
}

int64_t group_end(const struct lowering *L, int unit, int64_t at)
{
    const struct model_unit *u = &L->m->units[unit];
    if (at < u->trained_elements)
        return min_i64(at + L->s.group, u->trained_elements);
    return min_i64(at + L->s.group, u->elements);
}

void unit_fetch(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    char phase = L->phase;
    int layer = L->layer;
    L->layer = unit;
    if ((L->role & ROLE_UPDATE) && !u->updated)
        unit_update(L, unit);
    L->phase = phase;
    value_open_full(L, &u->param);
    for (int i = 0; i < u->param.n_tiles; i++)
        value_get(L, &u->param, i);
    L->layer = layer;
}

void unit_drop(struct lowering *L, int unit)
{
    struct value *p = &L->units[unit].param;
    value_close_full(L, p);
    if (p->n_tiles > 0 && p->tiles[0].residency != RES_DEVICE)
        value_keep_home(p, 0, p->rows);
}

/* AdamW of elements [a, b) where its operands are; the new parameters go home too. */
static void update_group(struct lowering *L, int unit, int64_t a, int64_t b)
{
    struct unit_values *u = &L->units[unit];
    struct value *master = master_of(L, unit), *all[] = {master, &u->m, &u->v, &u->grad};
    int at = L->s.update_on_host ? TIER_HOST : DEV, low = L->s.dtype != F32;
    for (int i = 0; i < 4; i++)
        value_bring(L, all[i], a, b, at, 3);
    if (low) { /* the parameter in storage dtype is written anew */
        struct tile *t = &u->param.tiles[value_tile_at(&u->param, a)];
        if (at == DEV)
            t->place[DEV] = (struct place){u->param.full_buffer, a * u->param.row_bytes};
        else if (t->residency == RES_HOST)
            t->place[TIER_HOST] = t->home;
        else
            t->place[TIER_HOST] = (struct place){buffer_new(L, TIER_HOST, (b - a) * u->param.row_bytes, CLASS_PARAM), 0};
    }
    struct op_attrs *attrs = emit(L, OP_ADAMW, L->s.update_on_host ? LANE_HOST : LANE_COMPUTE);
    attrs->vec.n = b - a;
    attrs->vec.n_decay = max_i64(0, min_i64(b, L->m->units[unit].decay_elements) - a);
    attrs->vec.low_precision = low;
    if (L->s.update_on_host)
        L->p->instrs[L->p->n_instrs - 1].depth = 2;
    for (int i = 0; i < 3; i++)
        arg_update(L, i, all[i], a, b, at);
    arg_read(L, 3, &u->grad, a, b, at);
    arg_read(L, 4, &L->norm, 0, 1, at);
    arg_read(L, 5, &L->record, 0, 1, at);
    if (low)
        arg_write(L, 6, &u->param, a, b, at);
    emit_done(L, 0);
    for (int i = 0; i < 3; i++) {
        value_put_home(L, all[i], a, b, at);
        if (all[i] != &u->param)
            value_keep_home(all[i], a, b);
    }
    if (low)
        value_put_home(L, &u->param, a, b, at);
    value_keep_home(&u->grad, a, b);
}

void unit_update(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    int64_t n = L->m->units[unit].trained_elements;
    L->phase = 'u';
    u->updated = 1;
    if (n == 0)
        return;
    if (!L->s.update_on_host) {
        value_get(L, &L->norm, 0);
        value_open_full(L, &u->param);
    }
    for (int64_t a = 0; a < n; a = group_end(L, unit, a))
        update_group(L, unit, a, group_end(L, unit, a));
    if (!(L->role & ROLE_FORWARD))
        unit_drop(L, unit);
}

void grads_begin(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    if (L->m->units[unit].trained_elements == 0)
        return;
    u->target = L->role & ROLE_FIRST ? &u->grad : &u->micro;
    struct value *g = u->target;
    int at_home = g == &u->grad && g->tiles[0].residency == RES_DEVICE;
    if (!at_home) {
        value_reset_full(g);
        value_open_full(L, g);
    }
    for (int i = 0; i < g->n_tiles; i++) {
        if (at_home)
            g->tiles[i].place[DEV] = g->tiles[i].home;
        else
            value_new(L, g, i);
        g->tiles[i].fresh = 1;
    }
}

void grads_finish(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    int64_t n = L->m->units[unit].trained_elements, row = u->first_sum;
    if (n == 0)
        return;
    for (int64_t a = 0, b; a < n; a = b) {
        b = group_end(L, unit, a);
        if (u->target == &u->micro) {
            value_bring(L, &u->grad, a, b, DEV, 1);
            struct op_attrs *attrs = emit(L, OP_ACCUM, LANE_COMPUTE);
            attrs->vec.n = b - a;
            arg_update(L, 0, &u->grad, a, b, DEV);
            arg_read(L, 1, &u->micro, a, b, DEV);
            emit_done(L, 0);
        }
        if (L->role & ROLE_LAST) {
            value_new(L, &L->sums, (int)row);
            struct op_attrs *attrs = emit(L, OP_SUMSQ, LANE_COMPUTE);
            attrs->vec.n = b - a;
            arg_write(L, 0, &L->sums, row, row + 1, DEV);
            arg_read(L, 1, &u->grad, a, b, DEV);
            emit_done(L, 0);
            row++;
        }
        value_put_home(L, &u->grad, a, b, DEV);
        value_keep_home(&u->grad, a, b);
    }
    if (u->grad.tiles[0].residency != RES_DEVICE)
        value_reset_full(&u->grad);
    if (u->target == &u->micro)
        value_reset_full(&u->micro);
}

void lower_norm(struct lowering *L)
{
    L->phase = 'i';
    L->layer = -1;
    value_new(L, &L->norm, 0);
    struct op_attrs *a = emit(L, OP_CLIP, LANE_COMPUTE);
    a->vec.n = L->n_sums;
    arg_write(L, 0, &L->norm, 0, 1, DEV);
    arg_read(L, 1, &L->sums, 0, L->n_sums, DEV);
    arg_read(L, 2, &L->record, 0, 1, DEV);
    emit_done(L, 0);
    value_put_home(L, &L->norm, 0, 1, DEV);
}
