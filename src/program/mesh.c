#include "program/mesh.h"

#include <stdio.h>

/* A row for each dimension. Legal degrees are in plan/lower/mesh.c, costs of messages in machine/rank_cost.c. */
const struct mesh_row mesh_rows[MESH_DIMS] = {
    [MESH_DP] = {"dp", 3, 0, 0, "sequences"},  [MESH_ULYSSES] = {"ulysses", 1, 0, 0, "heads"},
    [MESH_RING] = {"ring", 2, 0, 0, "tokens"}, [MESH_TP] = {"tp", 0, 0, 1, "slices of layers"},
    [MESH_PP] = {"pp", 4, 0, 1, "layers"},     [MESH_SLICES] = {"slices", 0, 1, 1, "slices of sequences"},
    [MESH_EP] = {"ep", 0, 1, 1, "experts"},
};

#define ALONG(dim) (1u << MESH_##dim)
enum { OF_SEQUENCES = ALONG(DP) | ALONG(ULYSSES) | ALONG(RING) };
const struct mesh_lane mesh_lanes[LANES] = {
    [LANE_WORLD] = {OF_SEQUENCES | ALONG(TP) | ALONG(PP), 0},
    [LANE_ULYSSES] = {ALONG(ULYSSES), 0},
    [LANE_RING] = {ALONG(RING), 0},
    [LANE_TP] = {ALONG(TP), 0},
    [LANE_ZERO] = {OF_SEQUENCES, ALONG(TP)},
    [LANE_STAGE] = {OF_SEQUENCES | ALONG(TP), ALONG(PP)},
    [LANE_PP] = {ALONG(PP), 0},
    [LANE_SEQUENCE] = {ALONG(ULYSSES) | ALONG(RING), 0, OF_SEQUENCES},
};
#undef ALONG

int mesh_degree(const struct mesh *m, enum mesh_dim d)
{
    return m->degree[d] > 0 ? m->degree[d] : 1;
}

struct mesh mesh_uniform(int degree)
{
    struct mesh m;
    for (int d = 0; d < MESH_DIMS; d++)
        m.degree[d] = degree;
    return m;
}

int64_t mesh_ranks(const struct mesh *m)
{
    int64_t ranks = 1;
    for (int d = 0; d < MESH_DIMS; d++)
        ranks *= mesh_rows[d].divides ? 1 : mesh_degree(m, (enum mesh_dim)d);
    return ranks;
}

/* Returns the product of the degrees of some dimensions. */
static int product_along(const struct mesh *m, unsigned dims)
{
    int n = 1;
    for (int d = 0; d < MESH_DIMS; d++)
        n *= dims >> d & 1 ? mesh_degree(m, (enum mesh_dim)d) : 1;
    return n;
}

/* Returns the distance in places between neighbours along the lane's dimensions: the product of the degrees of all dimensions
 * nested inside. Groups of ep are consecutive places. */
static int stride_of(const struct mesh *m, enum lane lane)
{
    const unsigned along = mesh_lanes[lane].along;
    int stride = 1, innermost = MESH_DIMS;
    if (along == 0)
        return lane == LANE_EXPERTS ? mesh_degree(m, MESH_EP) : 1;
    for (int d = 0; d < MESH_DIMS; d++)
        if (along >> d & 1 && mesh_rows[d].depth < innermost)
            innermost = mesh_rows[d].depth;
    for (int d = 0; d < MESH_DIMS; d++)
        stride *= mesh_rows[d].depth < innermost && !mesh_rows[d].divides ? mesh_degree(m, (enum mesh_dim)d) : 1;
    return stride;
}

int mesh_members(const struct mesh *m, enum lane lane)
{
    const int ep = mesh_degree(m, MESH_EP);
    const unsigned beside = mesh_lanes[lane].beside;
    if (lane == LANE_EP)
        return ep;
    if (lane == LANE_EXPERTS)
        return ep > 1 ? (int)mesh_ranks(m) / mesh_degree(m, MESH_PP) / ep : 1;
    for (int d = 0; d < MESH_DIMS; d++)
        if (mesh_lanes[lane].every >> d & 1 && mesh_degree(m, (enum mesh_dim)d) == 1)
            return 1;
    return beside != 0 && product_along(m, beside) == 1 ? 1 : product_along(m, mesh_lanes[lane].along);
}

struct mesh_group mesh_group_of(const struct mesh *m, enum lane lane, int place)
{
    struct mesh_group g = {.members = mesh_members(m, lane), .stride = stride_of(m, lane)};
    g.member = place / g.stride % g.members;
    g.first = place - g.member * g.stride;
    return g;
}

int mesh_sharing(const struct mesh *m)
{
    return mesh_degree(m, MESH_ULYSSES) * mesh_degree(m, MESH_RING) * mesh_degree(m, MESH_TP);
}

enum lane mesh_lane_of_stage(const struct mesh *m)
{
    return mesh_degree(m, MESH_PP) > 1 ? LANE_STAGE : LANE_WORLD;
}

enum lane mesh_lane_of_sliced(const struct mesh *m)
{
    return mesh_degree(m, MESH_TP) > 1 ? LANE_ZERO : mesh_lane_of_stage(m);
}

enum lane mesh_lane_of_sequence(const struct mesh *m)
{
    if (mesh_degree(m, MESH_RING) == 1)
        return LANE_ULYSSES;
    if (mesh_degree(m, MESH_ULYSSES) == 1)
        return LANE_RING;
    return mesh_degree(m, MESH_DP) > 1 ? LANE_SEQUENCE : LANE_WORLD;
}

int mesh_tells(const struct mesh *m, enum mesh_dim d)
{
    return !mesh_rows[d].optional || m->degree[d] > 1;
}

int mesh_is_decided(const struct mesh *m)
{
    for (int d = 0; d < MESH_DIMS; d++)
        if (m->degree[d] < 1 && !mesh_rows[d].optional)
            return 0;
    return 1;
}

int mesh_equal(const struct mesh *a, const struct mesh *b)
{
    for (int d = 0; d < MESH_DIMS; d++)
        if (a->degree[d] != b->degree[d] && !(mesh_rows[d].optional && a->degree[d] >= 0 && b->degree[d] >= 0 &&
                                              mesh_degree(a, (enum mesh_dim)d) == mesh_degree(b, (enum mesh_dim)d)))
            return 0;
    return 1;
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
        if (mesh_tells(m, (enum mesh_dim)d))
            n += snprintf(buf + n, (size_t)(MESH_TEXT - n), "%s%s=%d", d ? "," : "", mesh_rows[d].key, m->degree[d]);
    return buf;
}

const char *mesh_stages_format(const struct mesh_stages *s, char buf[MESH_STAGES_TEXT])
{
    int n = 0;
    buf[0] = 0;
    for (int i = 0; i < s->n; i++)
        n += snprintf(buf + n, (size_t)(MESH_STAGES_TEXT - n), "%s%d", i ? "," : "", s->layers[i]);
    return buf;
}
