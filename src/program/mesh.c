#include "program/mesh.h"

#include <string.h>

/* One row a dimension. Legal degrees are in plan/lower/mesh.c, costs of messages in machine/rank_cost.c. */
const struct mesh_row mesh_rows[MESH_DIMS] = {
    [MESH_DP] = {"dp", 2, LANES, "sequences"},
    [MESH_ULYSSES] = {"ulysses", 0, LANE_ULYSSES, "heads"},
    [MESH_RING] = {"ring", 1, LANE_RING, "tokens"},
};

static int degree(const struct mesh *m, enum mesh_dim d)
{
    return m->degree[d] > 0 ? m->degree[d] : 1;
}

int64_t mesh_ranks(const struct mesh *m)
{
    int64_t ranks = 1;
    for (int d = 0; d < MESH_DIMS; d++)
        ranks *= degree(m, (enum mesh_dim)d);
    return ranks;
}

/* Returns the number of places between neighbours along a dimension. */
static int mesh_stride(const struct mesh *m, enum mesh_dim d)
{
    int stride = 1;
    for (int i = 0; i < MESH_DIMS; i++)
        if (mesh_rows[i].depth < mesh_rows[d].depth)
            stride *= degree(m, (enum mesh_dim)i);
    return stride;
}

/* Returns the index of the rank at a place within its group. */
static int mesh_member(const struct mesh *m, enum mesh_dim d, int place)
{
    return place / mesh_stride(m, d) % degree(m, d);
}

struct mesh_group mesh_group_of(const struct mesh *m, enum lane lane, int place)
{
    for (int d = 0; d < MESH_DIMS; d++)
        if (mesh_rows[d].lane == lane) {
            struct mesh_group g = {.members = degree(m, (enum mesh_dim)d),
                                   .member = mesh_member(m, (enum mesh_dim)d, place),
                                   .stride = mesh_stride(m, (enum mesh_dim)d)};
            g.first = place - g.member * g.stride;
            return g;
        }
    return (struct mesh_group){.members = (int)mesh_ranks(m), .member = place, .first = 0, .stride = 1};
}

int mesh_is_decided(const struct mesh *m)
{
    for (int d = 0; d < MESH_DIMS; d++)
        if (m->degree[d] < 1)
            return 0;
    return 1;
}

int mesh_equal(const struct mesh *a, const struct mesh *b)
{
    return memcmp(a->degree, b->degree, sizeof a->degree) == 0;
}

void mesh_keys(const char *out[MESH_DIMS + 1])
{
    for (int d = 0; d < MESH_DIMS; d++)
        out[d] = mesh_rows[d].key;
    out[MESH_DIMS] = NULL;
}

const char *mesh_format(const struct mesh *m, char buf[MESH_TEXT])
{
    int n = 0;
    for (int d = 0; d < MESH_DIMS; d++)
        n += snprintf(buf + n, (size_t)(MESH_TEXT - n), "%s%s=%d", d ? "," : "", mesh_rows[d].key, m->degree[d]);
    return buf;
}
