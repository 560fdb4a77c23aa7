/* A parameter as an argument, and its gradient. */
#include "plan/lower/param.h"

#include "plan/lower/emit.h"

#define DEV TIER_DEVICE

const struct model_param *param_of(const struct lowering *L, int param)
{
    return &L->m->params[param];
}

void arg_param_part(struct lowering *L, int arg, int param, int64_t first, int64_t n)
{
    const struct model_param *p = param_of(L, param);
    if (!L->param_reads)
        L->param_reads = memory_new(L, L->m->n_params, sizeof *L->param_reads);
    if (L->st == OK)
        arg_read_again(L, arg, &L->units[p->unit].param, p->offset + first, p->offset + first + n, &L->param_reads[param]);
}

void arg_param(struct lowering *L, int arg, int param)
{
    arg_param_part(L, arg, param, 0, param_of(L, param)->elements);
}

int trained(const struct lowering *L, int param)
{
    return param >= 0 && param_of(L, param)->trained;
}

int arg_grad(struct lowering *L, int arg, int param, int64_t first, int64_t n)
{
    const struct model_param *p = param_of(L, param);
    struct value *g = L->units[p->unit].target;
    int64_t a = p->offset + first, b = a + n;
    int fresh = g->tiles[value_tile_at(g, a)].fresh;
    for (int i = value_tile_at(g, a); i < g->n_tiles && g->tiles[i].row0 < b; i++)
        g->tiles[i].fresh = 0;
    (fresh ? arg_write : arg_update)(L, arg, g, a, b, DEV);
    return !fresh;
}

void zero_gradient(struct lowering *L, int param)
{
    const struct model_param *p = param_of(L, param);
    struct value *g = L->units[p->unit].target;
    if (!g->tiles[value_tile_at(g, p->offset)].fresh)
        return;
    struct op_attrs *f = emit(L, OP_FILL, LANE_COMPUTE);
    f->fill.bytes = p->elements * 4;
    arg_grad(L, 0, param, 0, p->elements);
    emit_done(L, 0);
}
