#include "plan/lower/groups.h"

#include "base/blocks8.h"
#include "model/share.h"

enum lane plan_unit_lane(const struct model *m, const struct strategy *s, int unit)
{
    if (mesh_degree(&s->key.mesh, MESH_EP) > 1 && model_unit_has_experts(m, unit))
        return LANE_EXPERTS;
    return model_unit_in_layer(m, unit) ? mesh_lane_of_sliced(&s->key.mesh) : LANE_WORLD;
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

/* Lists the element offsets that no group may straddle: between trained elements with and without weight decay, and frozen ones.
 * Decay borders are needed only if optimizer state is sharded or moments come in blocks; other updates split a group by decay. */
static int unit_borders(const struct model *m, const struct strategy *s, int unit, int64_t border[4])
{
    const struct model_unit *u = &m->units[unit];
    const int of = divisor(m, s, unit);
    int n = 0;
    border[n++] = 0;
    if ((s->key.zero >= 1 || s->key.moments == I8) && u->decay_elements > 0 && u->decay_elements < u->trained_elements)
        border[n++] = u->decay_elements / of;
    if (u->trained_elements > 0)
        border[n++] = u->trained_elements / of;
    if (u->elements > u->trained_elements)
        border[n++] = u->elements / of;
    return n - 1;
}

struct group plan_group(const struct model *m, const struct strategy *s, int unit, int index)
{
    const enum lane lane = plan_unit_lane(m, s, unit);
    const int members = mesh_members(&s->key.mesh, lane);
    int64_t border[4], shard = 0, share = share_of(s, members, s->key.group);
    int n = unit_borders(m, s, unit, border);
    for (int i = 0; i < n; i++) {
        int64_t length = border[i + 1] - border[i], groups = ceil_div(length, s->key.group);
        if (index >= groups) {
            index -= (int)groups;
            shard += (groups - 1) * share + share_of(s, members, length - (groups - 1) * s->key.group);
            continue;
        }
        int64_t first = border[i] + index * s->key.group, end = min_i64(first + s->key.group, border[i + 1]);
        shard += index * share;
        return (struct group){first, end, shard, shard + share_of(s, members, end - first), lane};
    }
    return (struct group){border[n], border[n], shard, shard, lane};
}

int plan_groups(const struct model *m, const struct strategy *s, int unit, int64_t elements)
{
    int64_t border[4];
    int n = unit_borders(m, s, unit, border), groups = 0;
    elements /= divisor(m, s, unit);
    for (int i = 0; i < n && border[i] < elements; i++)
        groups += (int)ceil_div(border[i + 1] - border[i], s->key.group);
    return groups;
}

static int64_t packed_group_bytes(const struct strategy *s)
{
    return s->key.group * dtype_size(s->key.dtype);
}

struct group plan_packed_group(const struct model *m, const struct strategy *s, int unit, int index)
{
    const enum lane lane = plan_unit_lane(m, s, unit);
    const int members = mesh_members(&s->key.mesh, lane);
    const int64_t bytes = packed_group_bytes(s), first = index * bytes, end = min_i64(first + bytes, m->units[unit].packed_bytes),
                  shard = index * ceil_div(bytes, members);
    return (struct group){first, end, shard, shard + ceil_div(end - first, members), lane};
}

int plan_packed_groups(const struct model *m, const struct strategy *s, int unit)
{
    return (int)ceil_div(m->units[unit].packed_bytes, packed_group_bytes(s));
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
