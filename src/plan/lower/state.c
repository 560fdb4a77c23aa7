/* Values of units: shards, homes at fixed addresses, and the contents of homes at both ends of a program. */
#include "plan/lower/state.h"

#include "model/part.h"
#include "plan/lower/lowering.h"
#include "plan/lower/stack.h"
#include "plan/lower/value.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CUTS 4096

struct group unit_group(const struct lowering *L, int unit, int index)
{
    const struct unit_values *u = &L->units[unit];
    return index < u->n_groups ? u->groups[index] : plan_group(L->m, &L->s, unit, index);
}

int lower_is_apart(const struct lowering *L)
{
    return (L->duties & (DUTY_EMBED | DUTY_HEAD | DUTY_EMBED_GRAD | DUTY_PASS_FORWARD | DUTY_PASS_BACKWARD)) != 0;
}

int unit_duties(const struct lowering *L, int unit)
{
    const int d = L->duties, both = DUTY_FIRST | DUTY_LAST, of_head = L->m->params[L->m->head.weight].unit;
    if (L->pp == 1 || d == DUTY_UPDATE)
        return d;
    if (model_unit_in_layer(L->m, unit) || (unit == MODEL_EMBEDDING_UNIT && model_first_embeds(L->m)))
        return lower_is_apart(L) ? 0 : d;
    if (d & DUTY_EVALUATE)
        return 0;
    if ((d & DUTY_HEAD) && unit == model_head_unit(L->m))
        return DUTY_BACKWARD | (d & both);
    if ((d & DUTY_HEAD) && unit == of_head) /* a tied table's gradient as the embedding is yet to come */
        return DUTY_BACKWARD | (d & DUTY_FIRST);
    if ((d & DUTY_EMBED_GRAD) && unit == MODEL_EMBEDDING_UNIT)
        return DUTY_BACKWARD | (d & (of_head == unit ? DUTY_LAST : both));
    return 0;
}

int unit_groups(const struct lowering *L, int unit)
{
    return plan_groups(L->m, &L->s, unit, L->m->units[unit].elements);
}

int unit_trained_groups(const struct lowering *L, int unit)
{
    return plan_groups(L->m, &L->s, unit, L->m->units[unit].trained_elements);
}

int unit_zero(const struct lowering *L, int unit)
{
    return plan_unit_zero(L->m, &L->s, unit);
}

int optim_sharded(const struct lowering *L, int unit)
{
    return unit_zero(L, unit) >= 1;
}

enum norm_scope norm_scope(const struct lowering *L)
{
    if (L->s.key.zero >= 1 && L->n_parted_sums == L->n_sums)
        return NORM_OF_ALL;
    return L->n_parted_sums > 0 ? NORM_OF_SOME : NORM_OWN;
}

enum lane norm_lane(const struct lowering *L)
{
    if (L->s.key.zero >= 1)
        return LANE_WORLD;
    return mesh_degree(&L->s.key.mesh, MESH_EP) > 1 ? LANE_EP : LANE_TP;
}

struct value *unit_master(struct lowering *L, int unit)
{
    struct unit_values *u = &L->units[unit];
    return u->master.n_tiles > 0 ? &u->master : unit_zero(L, unit) == 3 ? &u->param_shard : &u->param;
}

static int persistent_buffer(struct lowering *L, enum tier tier, int64_t bytes, enum tensor_class class)
{
    return program_add_buffer(L->p, tier, bytes, class, 1);
}

/* Finds the rows [*row, *end) of a unit's value that belong to the unit's index-th group. */
static void group_rows(const struct lowering *L, const struct value *v, int unit, int index, int64_t *row, int64_t *end)
{
    struct group g = unit_group(L, unit, index);
    if (v->packed) {
        *row = v->tiles[index].row0;
        *end = v->tiles[index].row1;
        return;
    }
    *row = v->sharded ? g.shard_first : g.first;
    *end = min_i64(v->sharded ? g.shard_end : g.end, v->rows);
}

/* Tells whether a home has no gaps between groups: on the device, and on the host where single experts are read from it. */
static int is_flat(const struct lowering *L, int unit, enum residency r)
{
    return r == RES_DEVICE || (r == RES_HOST && unit >= 0 && L->s.expert_slots > 0 && model_unit_has_experts(L->m, unit));
}

void home_create(struct lowering *L, struct value *v, int unit, enum residency r)
{
    if (v->n_tiles == 0)
        return;
    int64_t bytes = 0; /* end of the groups so far; the next group starts at a multiple of BUFFER_ALIGN */
    int tile = 0, index = 0;
    for (int64_t a = 0, b; a < v->rows; a = b) {
        b = v->rows;
        if (unit >= 0)
            group_rows(L, v, unit, index++, &a, &b);
        bytes = is_flat(L, unit, r) ? a * v->row_bytes : round_up(bytes, BUFFER_ALIGN);
        for (; tile < v->n_tiles && v->tiles[tile].row0 < b; tile++) {
            v->tiles[tile].home.offset = bytes + (v->tiles[tile].row0 - a) * v->row_bytes;
            v->tiles[tile].extent_offset = bytes;
            v->tiles[tile].extent_bytes = (b - a) * v->row_bytes;
        }
        bytes += (b - a) * v->row_bytes;
    }
    int buffer = persistent_buffer(L, residency_tier(r), bytes, v->class);
    for (int i = 0; i < v->n_tiles; i++) {
        v->tiles[i].home.buffer = buffer;
        v->tiles[i].residency = r;
    }
    v->full = 1;
    if (r == RES_DEVICE)
        v->full_buffer = buffer;
}

void home_create_apart(struct lowering *L, struct value *v, enum residency r)
{
    int64_t bytes = 0;
    for (int i = 0; i < v->n_tiles; i++) {
        v->tiles[i].home.offset = v->tiles[i].extent_offset = bytes;
        v->tiles[i].extent_bytes = value_tile_bytes(v, i);
        bytes += round_up(v->tiles[i].extent_bytes, BUFFER_ALIGN);
    }
    int buffer = persistent_buffer(L, residency_tier(r), bytes, v->class);
    for (int i = 0; i < v->n_tiles; i++) {
        v->tiles[i].home.buffer = buffer;
        v->tiles[i].residency = r;
    }
}

/* Purpose of a binding: its kind, and the unit of the model that the bound rows belong to. */
struct purpose {
    enum binding_kind kind;
    int unit;
};

static void bind(struct lowering *L, const struct value *v, struct purpose x, int live_out)
{
    for (int i = 0; i < v->n_tiles; i++) {
        const struct tile *t = &v->tiles[i];
        program_add_binding(L->p, live_out,
                            (struct binding){.kind = (uint8_t)x.kind,
                                             .sharded = (uint8_t)v->sharded,
                                             .unit = (int16_t)x.unit,
                                             .buffer = t->home.buffer,
                                             .tensor = v->tensor,
                                             .version = t->version,
                                             .offset = t->home.offset,
                                             .row0 = t->row0,
                                             .row1 = t->row1,
                                             .extent_offset = t->extent_offset,
                                             .extent_bytes = t->extent_bytes});
    }
}

static void bind_state(struct lowering *L, struct value *v, struct purpose x, int end)
{
    v->changes++;
    for (int i = 0; i < v->n_tiles; i++) {
        struct tile *t = &v->tiles[i];
        if (!end)
            t->place[residency_tier(t->residency)] = t->home;
        else if (t->place[residency_tier(t->residency)].buffer != t->home.buffer && L->st == OK)
            L->st = status_fail(ERR_CORRUPT, "planner: %s is not at home at the end of program %s", L->p->tensors[v->tensor].name,
                                L->p->name);
    }
    bind(L, v, x, end);
}

void value_bind(struct lowering *L, struct value *v, int end)
{
    bind_state(L, v, (struct purpose){BINDING_OTHER, -1}, end);
}

void value_bind_as(struct lowering *L, struct value *v, enum binding_kind kind, int unit, int end)
{
    bind_state(L, v, (struct purpose){kind, unit}, end);
}

void value_bind_tiles(struct lowering *L, struct value *v, int first, int n, int end)
{
    struct value part = *v;
    part.tiles += first;
    part.n_tiles = n;
    bind_state(L, &part, (struct purpose){BINDING_OTHER, -1}, end);
}

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int parameter_cuts(const struct lowering *L, int unit, int64_t *cuts, int n, int max)
{
    const struct model_unit *u = &L->m->units[unit];
    for (int i = 0; i < u->n_params && n < max; i++)
        cuts[n++] = L->m->params[u->first_param + i].offset;
    return n;
}

/* Returns the number by which a unit is named: that in the model or, for an end of the model that stages share, in the whole model,
 * since stages with more layers have other numbers. */
static int number_of(const struct lowering *L, int unit)
{
    const struct model_unit *u = &L->m->units[unit];
    if (L->pp == 1 || model_unit_in_layer(L->m, unit) || !L->m->whole)
        return unit;
    return L->m->whole->params[L->m->params[u->first_param].whole].unit;
}

/* Creates a value over the first `elements` elements of a unit, cut at group borders. With pieces it is also cut at the borders
 * of parameters and at the offsets that `pieces` appends. */
static void unit_value(struct lowering *L, struct value *v, int unit, const char *what, enum tensor_class class, int64_t elements,
                       int64_t row_bytes, unit_cuts *pieces)
{
    static _Thread_local int64_t cuts[MAX_CUTS];
    char name[48];
    int n = 0, unique = 0, groups = plan_groups(L->m, &L->s, unit, elements);
    memset(v, 0, sizeof *v);
    v->full_buffer = -1;
    if (elements == 0)
        return;
    snprintf(name, sizeof name, "unit%d.%s", number_of(L, unit), what);
    for (int k = 0; k < groups && n < MAX_CUTS - 1; k++)
        cuts[n++] = unit_group(L, unit, k).first;
    if (pieces) {
        n = parameter_cuts(L, unit, cuts, n, MAX_CUTS - 1);
        n = pieces(L, unit, cuts, n, MAX_CUTS - 1);
    }
    cuts[n++] = elements;
    if (n >= MAX_CUTS - 1 && L->st == OK)
        L->st = status_fail(ERR_INVALID, "--tiles: group=%lld cuts unit %d into more than %d pieces: give a larger one",
                            (long long)L->s.key.group, unit, MAX_CUTS);
    if (pieces) /* further cuts were added behind those of groups, which ascend */
        qsort(cuts, (size_t)n, sizeof *cuts, compare_i64);
    for (int i = 0; i < n; i++)
        if (cuts[i] <= elements && (unique == 0 || cuts[unique - 1] != cuts[i]))
            cuts[unique++] = cuts[i];
    value_create_cuts(L, v, name, class, row_bytes, cuts, unique - 1, RES_DEVICE);
}

/* Creates the shards of the first `elements` elements of a unit: one tile per group. */
static void shard_value(struct lowering *L, struct value *v, int unit, const char *what, enum tensor_class class,
                        int64_t elements, int64_t row_bytes)
{
    static _Thread_local int64_t cuts[MAX_CUTS];
    char name[48];
    int groups = plan_groups(L->m, &L->s, unit, elements);
    memset(v, 0, sizeof *v);
    v->full_buffer = -1;
    if (elements == 0 || groups >= MAX_CUTS) /* unit_value has refused that many groups */
        return;
    snprintf(name, sizeof name, "unit%d.%s.shard", number_of(L, unit), what);
    for (int k = 0; k <= groups; k++)
        cuts[k] = unit_group(L, unit, k).shard_first;
    value_create_cuts(L, v, name, class, row_bytes, cuts, groups, RES_NONE);
    v->sharded = 1;
}

static void transient(struct value *v)
{
    v->full = 1;
    for (int i = 0; i < v->n_tiles; i++)
        v->tiles[i].residency = RES_NONE;
}

enum residency unit_residency(const struct lowering *L, int unit, enum tensor_class class)
{
    const int layer = model_unit_in_layer(L->m, unit) ? L->m->units[unit].layer : -1;
    if (L->s.placement.experts_at > 0 && model_unit_has_experts(L->m, unit))
        return (enum residency)(L->s.placement.experts_at - 1);
    return strategy_residency(&L->s, class, layer, (int)L->m->config.layers);
}

/* Creates a value of optimizer state (m, v, master) for all trained elements, or for their shards. */
static void optim_value(struct lowering *L, struct value *v, int unit, const char *what, enum dtype dtype)
{
    int64_t n = L->m->units[unit].trained_elements;
    if (optim_sharded(L, unit))
        shard_value(L, v, unit, what, CLASS_OPTIM, n, dtype_size(dtype));
    else
        unit_value(L, v, unit, what, CLASS_OPTIM, n, dtype_size(dtype), NULL);
    home_create(L, v, unit, unit_residency(L, unit, CLASS_OPTIM));
}

/* Creates moments in blocks of 8-bit numbers: one tile per group. */
static void packed_moments(struct lowering *L, struct value *v, int unit, const char *what)
{
    static _Thread_local int64_t cuts[MAX_CUTS];
    const int groups = unit_trained_groups(L, unit), sharded = optim_sharded(L, unit);
    char name[48];
    memset(v, 0, sizeof *v);
    v->full_buffer = -1;
    if (groups == 0 || groups >= MAX_CUTS) /* the parameters' unit_value has refused that many groups */
        return;
    snprintf(name, sizeof name, "unit%d.%s%s", number_of(L, unit), what, sharded ? ".shard" : "");
    for (int k = 0; k <= groups; k++)
        cuts[k] = plan_moments_row(L->m, &L->s, unit, k, sharded);
    value_create_cuts(L, v, name, CLASS_OPTIM, 1, cuts, groups, sharded ? RES_NONE : RES_DEVICE);
    v->sharded = sharded;
    v->packed = 1;
    home_create(L, v, unit, unit_residency(L, unit, CLASS_OPTIM));
}

static void moments_value(struct lowering *L, struct value *v, int unit, const char *what)
{
    if (L->s.key.moments == I8)
        packed_moments(L, v, unit, what);
    else
        optim_value(L, v, unit, what, L->s.key.moments);
}

static void create_parameters(struct lowering *L, int unit)
{
    const struct model_unit *mu = &L->m->units[unit];
    struct unit_values *v = &L->units[unit];
    const enum dtype type = plan_unit_type(&L->s, mu);
    int64_t size = dtype_size(type);
    unit_value(L, &v->param, unit, "param", CLASS_PARAM, mu->elements, size, NULL);
    if (unit_zero(L, unit) == 3) {
        transient(&v->param);
        shard_value(L, &v->param_shard, unit, "param", CLASS_PARAM, mu->elements, size);
        home_create(L, &v->param_shard, unit, unit_residency(L, unit, CLASS_PARAM));
    } else {
        home_create(L, &v->param, unit, unit_residency(L, unit, CLASS_PARAM));
        if (optim_sharded(L, unit) && type != F32)
            shard_value(L, &v->param_shard, unit, "param", CLASS_PARAM, mu->trained_elements, size);
    }
    if (L->s.cached_tokens == 0 && plan_has_masters(L->m, &L->s, unit))
        optim_value(L, &v->master, unit, "master", F32);
}

/* Returns the elements of the largest map in an interleaved matrix. */
static int64_t largest_map(const struct model_param *p)
{
    int64_t rows = 0, most = 0;
    for (int k = 0; k < p->parts; k++) {
        rows += p->part_rows[k];
        most = max_i64(most, p->part_rows[k]);
    }
    return model_param_stored(p) / rows * most;
}

/* Returns the most elements of the unit's quantised matrices that are dequantised at a time: the largest matrix, or enough for
 * TILE columns of a product with the longest sums. CPUs pack that many columns at a time (ops/gemm.c), and they fill a GPU beside
 * a few thousand rows. Stacks of experts are units of their own (stack.h). Maps that files interleave are dequantised whole. */
static int64_t most_dequantised(const struct lowering *L, int unit)
{
    enum { TILE = 2048 };
    const struct model_unit *u = &L->m->units[unit];
    int64_t most = 0, longest = 0, whole = 0;
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &L->m->params[i];
        if (p->packed_bytes == 0)
            continue;
        if (model_param_is_stack(p)) {
            whole = max_i64(whole, stack_dequantised(p));
            continue;
        }
        if (p->parts > 0) /* interleaved maps are not cut within heads */
            whole = max_i64(whole, largest_map(p));
        most = max_i64(most, model_param_stored(p));
        longest = max_i64(longest, max_i64(p->shape[0], p->shape[1]));
    }
    return max_i64(whole, min_i64(most, TILE * longest));
}

/* Creates a value of packed bytes: a row for each byte, a tile for each group. */
static void packed_value(struct lowering *L, struct value *v, int unit, const char *what, int sharded)
{
    static _Thread_local int64_t cuts[MAX_CUTS];
    const int groups = plan_packed_groups(L->m, &L->s, unit);
    char name[48];
    snprintf(name, sizeof name, "unit%d.%s", number_of(L, unit), what);
    for (int k = 0; k < groups; k++) {
        const struct group g = plan_packed_group(L->m, &L->s, unit, k);
        cuts[k] = sharded ? g.shard_first : g.first;
        cuts[k + 1] = sharded ? g.shard_end : g.end;
    }
    value_create_cuts(L, v, name, CLASS_PARAM, 1, cuts, groups, RES_NONE);
    v->sharded = sharded;
    v->packed = 1;
}

static void create_packed(struct lowering *L, int unit)
{
    struct unit_values *v = &L->units[unit];
    const int groups = plan_packed_groups(L->m, &L->s, unit), sharded = unit_zero(L, unit) == 3;
    char name[48];
    v->packed.full_buffer = v->packed_shard.full_buffer = v->dequantised.full_buffer = -1;
    if (groups >= MAX_CUTS && L->st == OK)
        L->st = status_fail(ERR_INVALID,
                            "--tiles: group=%lld cuts the matrices of unit %d into more than %d pieces: give a larger one",
                            (long long)L->s.key.group, unit, MAX_CUTS);
    if (groups == 0 || L->st != OK)
        return;
    packed_value(L, &v->packed, unit, "packed", 0);
    if (sharded) {
        transient(&v->packed);
        packed_value(L, &v->packed_shard, unit, "packed.shard", 1);
    }
    home_create(L, sharded ? &v->packed_shard : &v->packed, unit, unit_residency(L, unit, CLASS_PARAM));
    snprintf(name, sizeof name, "unit%d.dequantised", number_of(L, unit));
    const int64_t most = most_dequantised(L, unit);
    value_create(L, &v->dequantised, name, CLASS_WORK, most, dtype_size(L->s.key.dtype), most, RES_NONE);
}

static void create_gradients(struct lowering *L, int unit, unit_cuts *pieces)
{
    struct unit_values *v = &L->units[unit];
    int64_t n = L->m->units[unit].trained_elements;
    unit_value(L, &v->micro, unit, "micro", CLASS_GRAD, n, 4, pieces);
    transient(&v->micro);
    if (unit_zero(L, unit) >= 2) {
        shard_value(L, &v->grad, unit, "grad", CLASS_GRAD, n, 4);
        shard_value(L, &v->micro_shard, unit, "micro", CLASS_GRAD, n, 4);
    } else {
        unit_value(L, &v->grad, unit, "grad", CLASS_GRAD, n, 4, pieces);
    }
    home_create(L, &v->grad, unit, unit_residency(L, unit, CLASS_GRAD));
    if (unit_zero(L, unit) == 1) {
        shard_value(L, &v->grad_shard, unit, "grad_sum", CLASS_GRAD, n, 4);
        home_create(L, &v->grad_shard, unit, unit_residency(L, unit, CLASS_GRAD));
    }
}

/* Lists a unit's groups, which are asked for many times. */
static void list_groups(struct lowering *L, int unit)
{
    struct unit_values *v = &L->units[unit];
    const int n = (int)min_i64(unit_groups(L, unit), MAX_CUTS);
    v->groups = memory_new(L, n, sizeof *v->groups);
    for (int k = 0; v->groups && k < n; k++)
        v->groups[k] = plan_group(L->m, &L->s, unit, k);
    v->n_groups = v->groups ? n : 0;
}

/* Tells whether other ranks have gradients of such a group that this one lacks: other shards, experts, slices or stages. */
static int is_parted(const struct lowering *L, int unit, const struct group *g)
{
    return unit_zero(L, unit) >= 1 || g->lane == LANE_EXPERTS || g->lane == LANE_ZERO || L->pp > 1;
}

/* Numbers the sums of squares of groups of which this rank has a part, or those of all other groups. */
static void number_sums(struct lowering *L, int parted)
{
    for (int u = 0; u < L->m->n_units && L->st == OK; u++) {
        const int n = unit_trained_groups(L, u);
        if (parted)
            L->units[u].sum = memory_new(L, n, sizeof *L->units[u].sum);
        for (int k = 0; k < n && L->st == OK; k++) {
            const struct group g = unit_group(L, u, k);
            if (is_parted(L, u, &g) == parted)
                L->units[u].sum[k] = (int32_t)L->n_sums++;
        }
    }
    if (parted)
        L->n_parted_sums = L->n_sums;
}

void units_create(struct lowering *L, unit_cuts *pieces)
{
    L->units = memory_new(L, L->m->n_units, sizeof *L->units);
    for (int u = 0; L->units && u < L->m->n_units; u++) {
        struct unit_values *v = &L->units[u];
        list_groups(L, u);
        create_parameters(L, u);
        create_packed(L, u);
        if (L->s.cached_tokens > 0) /* nothing is trained */
            continue;
        moments_value(L, &v->m, u, "m");
        moments_value(L, &v->v, u, "v");
        create_gradients(L, u, pieces);
        v->target = &v->grad;
    }
    for (int pass = 0; L->units && pass < 2 && L->s.cached_tokens == 0; pass++)
        number_sums(L, pass == 0);
}

void units_bind(struct lowering *L, int end)
{
    for (int u = 0; u < L->m->n_units; u++) {
        struct unit_values *v = &L->units[u];
        const int duties = unit_duties(L, u), backward = (duties & DUTY_BACKWARD) != 0, update = (duties & DUTY_UPDATE) != 0,
                  further = backward && !(duties & DUTY_FIRST), last = (duties & DUTY_LAST) != 0;
        const int zero = unit_zero(L, u);
        bind_state(L, zero == 3 ? &v->param_shard : &v->param, (struct purpose){BINDING_PARAM, u}, end);
        bind_state(L, zero == 3 ? &v->packed_shard : &v->packed, (struct purpose){BINDING_PACKED, u}, end);
        bind_state(L, &v->master, (struct purpose){BINDING_MASTER, u}, end);
        bind_state(L, &v->m, (struct purpose){BINDING_M, u}, end);
        bind_state(L, &v->v, (struct purpose){BINDING_V, u}, end);
        if (zero == 1) { /* between micro-batches a rank keeps its own whole gradient, for the update its shard of the sum */
            if (end ? backward && !last : further)
                bind_state(L, &v->grad, (struct purpose){BINDING_GRAD, u}, end);
            if (end ? last : update)
                bind_state(L, &v->grad_shard, (struct purpose){BINDING_GRAD_SUM, u}, end);
        } else if (end ? backward : update || further) {
            bind_state(L, &v->grad, (struct purpose){BINDING_GRAD, u}, end);
        }
    }
}
