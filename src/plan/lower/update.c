/* Units: fetching parameters, the optimizer update, and the steps after a finished gradient. */
#include "plan/lower/update.h"

#include "plan/lower/emit.h"
#include "plan/lower/param.h"
#include "plan/lower/visit.h"

#define DEV TIER_DEVICE

/* --- Collectives of a group's lane --- */

void gather_group(struct lowering *L, struct value *whole, struct value *shard, struct group g, int depth)
{
    struct op_attrs *a = emit(L, OP_ALL_GATHER, g.lane);
    L->p->instrs[L->p->n_instrs - 1].depth = (uint8_t)depth;
    a->comm.n = g.end - g.first;
    a->comm.share = g.shard_end - g.shard_first;
    a->comm.element = (int32_t)whole->row_bytes;
    for (int i = value_tile_at(whole, g.first); i < whole->n_tiles && whole->tiles[i].row0 < g.end; i++)
        value_new(L, whole, i);
    arg_read(L, 0, shard, g.shard_first, g.shard_end, DEV);
    arg_write(L, 1, whole, g.first, g.end, DEV);
    emit_done(L, 0);
}

static void reduce_attrs(const struct lowering *L, struct op_attrs *a, struct group g)
{
    a->comm.n = g.end - g.first;
    a->comm.share = g.shard_end - g.shard_first;
    a->comm.type = (int32_t)L->s.key.wire;
    a->comm.element = 4;
}

/* Sums all members' copies of `whole`; each member gets its shard of the sum. */
static void reduce_group(struct lowering *L, struct value *shard, struct value *whole, struct group g)
{
    value_new(L, shard, value_tile_at(shard, g.shard_first));
    struct op_attrs *a = emit(L, OP_REDUCE_SCATTER, g.lane);
    reduce_attrs(L, a, g);
    arg_read(L, 0, whole, g.first, g.end, DEV);
    arg_write(L, 1, shard, g.shard_first, g.shard_end, DEV);
    emit_done(L, 0);
}

static void all_reduce_group(struct lowering *L, struct value *v, struct group g)
{
    struct op_attrs *a = emit(L, OP_ALL_REDUCE, g.lane);
    reduce_attrs(L, a, g);
    arg_update(L, 0, v, g.first, g.end, DEV);
    emit_done(L, 0);
}

/* --- Parameters --- */

/* Gathers the group's parameters of all ranks from shards, which are current in some tier. */
static void gather_parameters(struct lowering *L, struct value *whole, struct value *shard, struct group g)
{
    value_bring(L, shard, g.shard_first, g.shard_end, DEV, 2);
    gather_group(L, whole, shard, g, 1);
    if (shard->tiles[0].residency != RES_NONE)
        value_keep_home(shard, g.shard_first, g.shard_end);
}

static void group_fetch(struct lowering *L, int unit, struct value *whole, struct value *shard, struct group g)
{
    value_open_full(L, whole);
    int tile = value_tile_at(whole, g.first);
    const int zero = unit_zero(L, unit);
    if (zero == 3 && !value_on_device(whole, tile))
        gather_parameters(L, whole, shard, g);
    for (; zero < 3 && tile < whole->n_tiles && whole->tiles[tile].row0 < g.end; tile++)
        value_get(L, whole, tile);
}

void unit_fetch(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    enum phase phase = L->phase;
    const int before = L->unit;
    L->unit = unit;
    if ((L->duties & DUTY_UPDATE) && !u->updated)
        unit_update(L, unit);
    L->phase = phase;
    for (int k = 0; k < unit_groups(L, unit); k++)
        group_fetch(L, unit, &u->param, &u->param_shard, unit_group(L, unit, k));
    for (int k = 0; k < u->packed.n_tiles; k++)
        group_fetch(L, unit, &u->packed, &u->packed_shard, plan_packed_group(L->m, &L->s, unit, k));
    L->unit = before;
}

static void drop(struct lowering *L, struct value *v)
{
    value_close_full(L, v);
    if (v->n_tiles > 0 && v->tiles[0].residency != RES_DEVICE)
        value_keep_home(v, 0, v->rows);
}

void unit_drop(struct lowering *L, int unit)
{
    drop(L, &L->units[unit].param);
    drop(L, &L->units[unit].packed);
}

/* --- Update --- */

/* Tells whether the host updates a unit. If the host updates, layers with only their own optimizer state on the device are still
 * updated there. */
static int is_updated_on_host(const struct lowering *L, int unit)
{
    return L->s.placement.update_on_host &&
           (L->s.placement.optim == RES_DEVICE || unit_residency(L, unit, CLASS_OPTIM) != RES_DEVICE);
}

/* Returns the number of elements of the model before a unit's. */
static int64_t elements_before(const struct model *m, int unit)
{
    int64_t n = 0;
    for (int u = 0; u < unit; u++)
        n += m->units[u].elements;
    return n;
}

/* Finds or makes the place where AdamW writes the new parameters in storage type. */
static void place_low(struct lowering *L, struct value *low, int64_t a, int64_t b, int at)
{
    struct tile *t = &low->tiles[value_tile_at(low, a)];
    int64_t bytes = (b - a) * low->row_bytes;
    low->changes++;
    if (at == DEV && low->full_buffer >= 0)
        t->place[DEV] = (struct place){low->full_buffer, a * low->row_bytes};
    else if (at == DEV)
        t->place[DEV] = (struct place){buffer_new(L, DEV, bytes, CLASS_PARAM), 0};
    else if (t->residency == RES_HOST)
        t->place[TIER_HOST] = t->home;
    else
        t->place[TIER_HOST] = (struct place){buffer_new(L, TIER_HOST, bytes, CLASS_PARAM), 0};
}

/* Gathers the results of a sharded update into every rank's whole parameters. */
static void publish_group(struct lowering *L, int unit, struct value *shard, struct group g)
{
    struct unit_values *u = &L->units[unit];
    gather_parameters(L, &u->param, shard, g);
    value_put_home(L, &u->param, g.first, g.end, DEV);
}

/* Rows of a value that AdamW works on. */
struct worked {
    struct value *value;
    int64_t row0, row1;
};

/* Returns elements [a, b) of a value or, for packed moments, the group's bytes. */
static struct worked worked_of(struct value *v, int index, int64_t a, int64_t b)
{
    if (v->packed)
        return (struct worked){v, v->tiles[index].row0, v->tiles[index].row1};
    return (struct worked){v, a, b};
}

/* Runs AdamW on one group, in the tier where it is updated, and writes the new values home. */
static void update_group(struct lowering *L, int unit, int index)
{
    struct unit_values *u = &L->units[unit];
    const struct group g = unit_group(L, unit, index);
    const int zero = unit_zero(L, unit), sharded = zero >= 1;
    struct value *master = unit_master(L, unit), *grad = zero == 1 ? &u->grad_shard : &u->grad;
    struct value *low = plan_unit_type(&L->s, &L->m->units[unit]) == F32 ? NULL : sharded ? &u->param_shard : &u->param;
    int on_host = is_updated_on_host(L, unit), at = on_host ? TIER_HOST : DEV;
    int64_t a = sharded ? g.shard_first : g.first, b = sharded ? g.shard_end : g.end, decay = L->m->units[unit].decay_elements;
    const struct worked all[] = {worked_of(master, index, a, b), worked_of(&u->m, index, a, b), worked_of(&u->v, index, a, b),
                                 worked_of(grad, index, a, b)};
    for (int i = 0; i < 4; i++)
        value_bring(L, all[i].value, all[i].row0, all[i].row1, at, 3);
    if (low)
        place_low(L, low, a, b, at);
    struct op_attrs *attrs = emit(L, OP_ADAMW, on_host ? LANE_HOST : LANE_COMPUTE);
    attrs->vec.n = b - a;
    attrs->vec.n_decay = sharded ? (g.end <= decay ? b - a : 0) : max_i64(0, min_i64(g.end, decay) - g.first);
    attrs->vec.first = elements_before(L->m, unit) + g.first;
    attrs->vec.share = sharded ? b - a : 0;
    attrs->vec.low_precision = low != NULL;
    attrs->vec.moments = (int32_t)L->s.key.moments;
    attrs->vec.group = lane_in_record(g.lane);
    if (on_host)
        L->p->instrs[L->p->n_instrs - 1].depth = 2;
    for (int i = 0; i < 3; i++)
        arg_update(L, i, all[i].value, all[i].row0, all[i].row1, at);
    arg_read(L, 3, grad, a, b, at);
    arg_read(L, 4, &L->norm, 0, 1, at);
    arg_read(L, 5, &L->record, 0, 1, at);
    if (low)
        arg_write(L, 6, low, a, b, at);
    emit_done(L, 0);
    for (int i = 0; i < 3; i++)
        value_put_home(L, all[i].value, all[i].row0, all[i].row1, at);
    if (low && low->tiles[0].residency != RES_NONE)
        value_put_home(L, low, a, b, at);
    if (zero == 1 || zero == 2)
        publish_group(L, unit, low ? low : master, g);
    for (int i = 0; i < 3; i++)
        if (all[i].value != &u->param)
            value_keep_home(all[i].value, all[i].row0, all[i].row1);
    value_keep_home(grad, a, b);
}

void unit_update(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    int groups = unit_trained_groups(L, unit), on_host = is_updated_on_host(L, unit);
    L->phase = PHASE_UPDATE;
    u->updated = 1;
    if (groups == 0)
        return;
    if (!on_host)
        value_get(L, &L->norm, 0);
    if (!on_host || optim_sharded(L, unit))
        value_open_full(L, &u->param);
    for (int k = 0; k < groups; k++) {
        update_group(L, unit, k);
        if ((L->duties & DUTY_FORWARD) && on_host) /* at once, so that the host holds the parameters of one group only */
            group_fetch(L, unit, &u->param, &u->param_shard, unit_group(L, unit, k));
    }
    if (!(L->duties & DUTY_FORWARD))
        unit_drop(L, unit);
}

/* --- Gradients --- */

/* Brings a unit's gradients of earlier pieces to the device. */
static void bring_gradients(struct lowering *L, int unit)
{
    for (int k = 0; k < unit_trained_groups(L, unit); k++) {
        const struct group g = unit_group(L, unit, k);
        value_bring(L, &L->units[unit].grad, g.first, g.end, DEV, 1);
    }
}

/* Pieces of a pipeline, of which there are many, add to the batch's gradient in place, if a rank has all of it. */
void grads_begin(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    const int first = (unit_duties(L, unit) & DUTY_FIRST) != 0;
    if (L->m->units[unit].trained_elements == 0)
        return;
    u->target = (first || L->pp > 1) && unit_zero(L, unit) < 2 ? &u->grad : &u->micro;
    struct value *g = u->target;
    const int at_home = g == &u->grad && g->tiles[0].residency == RES_DEVICE, goes_on = g == &u->grad && !first;
    if (!at_home) {
        value_reset_full(g);
        value_open_full(L, g);
    }
    if (goes_on && !at_home)
        bring_gradients(L, unit);
    g->changes++;
    for (int i = 0; i < g->n_tiles; i++) {
        if (at_home)
            g->tiles[i].place[DEV] = g->tiles[i].home;
        else if (!goes_on)
            value_new(L, g, i);
        g->tiles[i].fresh = !goes_on;
    }
}

static void accumulate(struct lowering *L, struct value *sum, struct value *part, int64_t a, int64_t b)
{
    value_bring(L, sum, a, b, DEV, 1);
    struct op_attrs *attrs = emit(L, OP_ACCUM, LANE_COMPUTE);
    attrs->vec.n = b - a;
    arg_update(L, 0, sum, a, b, DEV);
    arg_read(L, 1, part, a, b, DEV);
    emit_done(L, 0);
}

/* Adds the group's gradient of this micro-batch to the batch's, and sums it over ranks as early as sharding requires. Returns the
 * value that the gradient norm and the update read. */
static struct value *finish_group(struct lowering *L, int unit, struct group g)
{
    struct unit_values *u = &L->units[unit];
    const int zero = unit_zero(L, unit), duties = unit_duties(L, unit);
    if (zero >= 2) {
        int first = (duties & DUTY_FIRST) != 0;
        reduce_group(L, first ? &u->grad : &u->micro_shard, &u->micro, g);
        if (!first)
            accumulate(L, &u->grad, &u->micro_shard, g.shard_first, g.shard_end);
        return &u->grad;
    }
    if (u->target == &u->micro)
        accumulate(L, &u->grad, &u->micro, g.first, g.end);
    if (!(duties & DUTY_LAST) || mesh_members(&L->s.key.mesh, g.lane) == 1)
        return &u->grad;
    if (zero == 0) {
        all_reduce_group(L, &u->grad, g);
        return &u->grad;
    }
    reduce_group(L, &u->grad_shard, &u->grad, g);
    value_keep_home(&u->grad, g.first, g.end);
    return &u->grad_shard;
}

/* Returns how many ranks hold a group's whole gradient, by which each divides the squares that it adds to a pipeline's norm; 0: only this
 * one holds them. */
static int holders(const struct lowering *L, int unit, const struct group *g)
{
    const int members = mesh_members(&L->s.key.mesh, g->lane);
    return L->pp > 1 && unit_zero(L, unit) == 0 && members > 1 ? members : 0;
}

/* Zeroes gradients that one end of the model alone does not write: of learned positions, beside the head's of a tied table. */
static void fill_unwritten(struct lowering *L, int unit)
{
    const struct model_unit *u = &L->m->units[unit];
    for (int i = u->first_param; L->pp > 1 && i < u->first_param + u->n_params; i++)
        if (trained(L, i))
            zero_gradient(L, i);
}

void grads_finish(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    const int groups = unit_trained_groups(L, unit), last = (unit_duties(L, unit) & DUTY_LAST) != 0;
    if (groups == 0)
        return;
    fill_unwritten(L, unit);
    for (int k = 0; k < groups; k++) {
        struct group g = unit_group(L, unit, k);
        struct value *sum = finish_group(L, unit, g);
        int64_t a = sum->sharded ? g.shard_first : g.first, b = sum->sharded ? g.shard_end : g.end;
        if (last) {
            int64_t row = u->sum[k];
            value_new(L, &L->sums, (int)row);
            struct op_attrs *attrs = emit(L, OP_SUMSQ, LANE_COMPUTE);
            attrs->vec.share = holders(L, unit, &g);
            attrs->vec.n = b - a;
            arg_write(L, 0, &L->sums, row, row + 1, DEV);
            arg_read(L, 1, sum, a, b, DEV);
            emit_done(L, 0);
        }
        value_put_home(L, sum, a, b, DEV);
        value_keep_home(sum, a, b);
    }
    if (u->grad.tiles[0].residency != RES_DEVICE)
        value_reset_full(&u->grad);
    if (u->target == &u->micro)
        value_reset_full(&u->micro);
}

/* Zeroes the sums that other stages have more of, or the only one if nothing is trained. */
static void pad_sums(struct lowering *L)
{
    const int64_t first = L->n_sums, end = L->sums.rows;
    if (first == end)
        return;
    for (int64_t i = first; i < end; i++)
        value_new(L, &L->sums, (int)i);
    struct op_attrs *f = emit(L, OP_FILL, LANE_COMPUTE);
    f->fill.bytes = (end - first) * L->sums.row_bytes;
    arg_write(L, 0, &L->sums, first, end, DEV);
    emit_done(L, 0);
}

void lower_norm(struct lowering *L)
{
    L->phase = PHASE_IO;
    L->unit = -1;
    struct value *sums = &L->sums;
    const enum norm_scope scope = norm_scope(L);
    const int64_t own = scope == NORM_OF_SOME ? L->n_parted_sums : 0; /* rows that the sum does not begin with */
    if (own == 0)
        pad_sums(L);
    if (scope == NORM_OF_ALL) {
        sums = &L->all_sums;
        value_open_full(L, sums);
        gather_group(L, sums, &L->sums, (struct group){0, sums->rows, 0, L->sums.rows, LANE_WORLD}, 0);
    } else if (own > 0) {
        gather_group(L, sums, sums, (struct group){L->n_sums, sums->rows, 0, own, norm_lane(L)}, 0);
    }
    value_new(L, &L->norm, 0);
    struct op_attrs *a = emit(L, OP_CLIP, LANE_COMPUTE);
    a->vec.n = sums->rows - own;
    arg_write(L, 0, &L->norm, 0, 1, DEV);
    arg_read(L, 1, sums, own, sums->rows, DEV);
    arg_read(L, 2, &L->record, 0, 1, DEV);
    emit_done(L, 0);
    value_put_home(L, &L->norm, 0, 1, DEV);
}

void lower_loss_sum(struct lowering *L)
{
    if (L->s.ranks > 1) {
        value_open_full(L, &L->all_loss);
        gather_group(L, &L->all_loss, &L->loss, (struct group){0, L->all_loss.rows, 0, L->loss.rows, LANE_WORLD}, 0);
    }
    struct value *loss = L->s.ranks > 1 ? &L->all_loss : &L->loss;
    value_put_home(L, loss, 0, loss->rows, DEV);
}
