#include "plan/lower/groups.h"

#include "base/blocks8.h"
#include "model/part.h"
#include "model/share.h"

enum lane plan_unit_lane(const struct model *m, const struct strategy *s, int unit)
{
    if (mesh_degree(&s->key.mesh, MESH_EP) > 1 && model_unit_has_experts(m, unit))
        return LANE_EXPERTS;
    if (model_unit_in_layer(m, unit))
        return mesh_lane_of_sliced(&s->key.mesh);
    return unit == MODEL_EMBEDDING_UNIT && model_first_embeds(m) ? mesh_lane_of_stage(&s->key.mesh) : LANE_WORLD;
}

int plan_unit_zero(const struct model *m, const struct strategy *s, int unit)
{
    return mesh_members(&s->key.mesh, plan_unit_lane(m, s, unit)) > 1 ? s->key.zero : 0;
}

int plan_has_masters(const struct model *m, const struct strategy *s, int unit)
{
    const int zero = plan_unit_zero(m, s, unit);
    return plan_unit_type(s, &m->units[unit]) != F32 || zero == 1 || zero == 2;
}

/* Returns the number by which the unit's elements are divided. */
static int divisor(const struct model *m, const struct strategy *s, int unit)
{
    return model_share_of(m, mesh_degree(&s->key.mesh, MESH_EP), unit);
}

/* Returns the number of elements in the share of each member of a group that divides n elements; the last members' shares may
 * have fewer. Shares never divide blocks of 8-bit moments. */
static int64_t share_of(const struct strategy *s, int members, int64_t n)
{
    const int64_t share = ceil_div(n, members);
    return s->key.moments == I8 ? min_i64(n, round_up(share, BLOCK8)) : share;
}

/* Ranges of a unit's elements that no group may straddle. */
enum { MOST_RANGES = 6 };
struct ranges {
    int n;
    int64_t border[MOST_RANGES + 1];
    enum lane lane[MOST_RANGES]; /* lane whose members share a range's elements */
};

/* Appends a range up to `end`, unless it is empty. */
static void add_range(struct ranges *r, int64_t end, enum lane lane)
{
    if (end > r->border[r->n]) {
        r->lane[r->n] = lane;
        r->border[++r->n] = end;
    }
}

/* Appends the elements up to `end`: those that slices divide, then those that all slices have. */
static void add_slices(const struct strategy *s, const struct model_unit *u, int class, int64_t end, struct ranges *r)
{
    add_range(r, r->border[r->n] + u->sliced[class], mesh_lane_of_sliced(&s->key.mesh));
    add_range(r, end, mesh_lane_of_stage(&s->key.mesh));
}

/* Lists the ranges of a unit: trained elements with and without weight decay, and frozen ones. Decay borders are needed only if
 * optimizer state is sharded or moments come in blocks; other updates split a group by decay. */
static void unit_ranges(const struct model *m, const struct strategy *s, int unit, struct ranges *r)
{
    enum { DECAYED, TRAINED, FROZEN };
    const struct model_unit *u = &m->units[unit];
    const enum lane lane = plan_unit_lane(m, s, unit);
    const int of = divisor(m, s, unit);
    r->n = 0;
    r->border[0] = 0;
    if (mesh_degree(&s->key.mesh, MESH_TP) > 1 && model_unit_in_layer(m, unit)) {
        add_slices(s, u, DECAYED, u->decay_elements, r);
        add_slices(s, u, TRAINED, u->trained_elements, r);
        add_slices(s, u, FROZEN, u->elements, r);
        return;
    }
    if (s->key.zero >= 1 || s->key.moments == I8)
        add_range(r, u->decay_elements / of, lane);
    add_range(r, u->trained_elements / of, lane);
    add_range(r, u->elements / of, lane);
}

struct group plan_group(const struct model *m, const struct strategy *s, int unit, int index)
{
    struct ranges r;
    int64_t shard = 0;
    unit_ranges(m, s, unit, &r);
    for (int i = 0; i < r.n; i++) {
        const int members = mesh_members(&s->key.mesh, r.lane[i]);
        int64_t length = r.border[i + 1] - r.border[i], groups = ceil_div(length, s->key.group),
                share = share_of(s, members, s->key.group);
        if (index >= groups) {
            index -= (int)groups;
            shard += (groups - 1) * share + share_of(s, members, length - (groups - 1) * s->key.group);
            continue;
        }
        int64_t first = r.border[i] + index * s->key.group, end = min_i64(first + s->key.group, r.border[i + 1]);
        shard += index * share;
        return (struct group){first, end, shard, shard + share_of(s, members, end - first), r.lane[i]};
    }
    return (struct group){r.border[r.n], r.border[r.n], shard, shard, plan_unit_lane(m, s, unit)};
}

int plan_groups(const struct model *m, const struct strategy *s, int unit, int64_t elements)
{
    struct ranges r;
    int groups = 0;
    unit_ranges(m, s, unit, &r);
    elements /= divisor(m, s, unit);
    for (int i = 0; i < r.n && r.border[i] < elements; i++)
        groups += (int)ceil_div(r.border[i + 1] - r.border[i], s->key.group);
    return groups;
}

static int64_t packed_group_bytes(const struct strategy *s)
{
    return s->key.group * dtype_size(s->key.dtype);
}

/* Returns the bytes of the unit's quantised matrices that the rank has. */
static int64_t packed_bytes(const struct model *m, const struct strategy *s, int unit)
{
    return m->units[unit].packed_bytes / divisor(m, s, unit);
}

struct group plan_packed_group(const struct model *m, const struct strategy *s, int unit, int index)
{
    const enum lane lane = plan_unit_lane(m, s, unit);
    const int members = mesh_members(&s->key.mesh, lane);
    const int64_t bytes = packed_group_bytes(s), first = index * bytes, end = min_i64(first + bytes, packed_bytes(m, s, unit)),
                  shard = index * ceil_div(bytes, members);
    return (struct group){first, end, shard, shard + ceil_div(end - first, members), lane};
}

int plan_packed_groups(const struct model *m, const struct strategy *s, int unit)
{
    return (int)ceil_div(packed_bytes(m, s, unit), packed_group_bytes(s));
}

int64_t plan_moments_row(const struct model *m, const struct strategy *s, int unit, int index, int sharded)
{
    int64_t row = 0;
    for (int k = 0; k < index; k++) {
        struct group g = plan_group(m, s, unit, k);
        row += blocks8_bytes(sharded ? g.shard_end - g.shard_first : g.end - g.first);
    }
    return row;
}
