/* Ranks, mesh and the groups of the comm lanes. */
#include "comm/state.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)CHANNELS == (int)CHANNEL_WORLD + (int)COMM_LANES, "a channel for each comm lane");

static enum status group_make(struct comm *c, enum lane lane, int members, int me, int first, int stride)
{
    struct group *g = comm_group(c, lane);
    struct comm_traffic sent = g->sent;
    free(g->send);
    *g = (struct group){.members = members,
                        .me = me,
                        .first = first,
                        .stride = stride,
                        .channel = CHANNEL_WORLD + (lane - LANE_WORLD),
                        .sent = sent};
    g->send = sys_calloc(2 * (size_t)members, sizeof *g->send);
    if (!g->send)
        return status_fail(ERR_NOMEM, "out of memory for a group of %d ranks", members);
    g->recv = g->send + members;
    return members > 1 ? wire_reserve(c->wire, g->channel, 4 * members) : OK;
}

void group_free(struct comm *c)
{
    for (int l = 0; l < COMM_LANES; l++) {
        free(c->group[l].send);
        c->group[l].send = c->group[l].recv = NULL;
    }
}

enum status comm_set_mesh(struct comm *c, const struct mesh *mesh)
{
    char here[MESH_TEXT], there[MESH_TEXT];
    for (int d = 0; d < MESH_DIMS; d++)
        if (mesh->degree[d] < (mesh_rows[d].optional ? 0 : 1) || mesh_ranks(mesh) != c->launch.size)
            return status_fail(ERR_INVALID, "the mesh %s has %lld ranks, but %d were started (%s)", mesh_format(mesh, here),
                               (long long)mesh_ranks(mesh), c->launch.size, c->launch.source);
    if (c->wire) {
        struct mesh *all = sys_malloc((size_t)c->launch.size * sizeof *all);
        if (!all)
            return status_fail(ERR_NOMEM, "out of memory for the mesh of %d ranks", c->launch.size);
        enum status st = comm_gather(c, mesh, sizeof *mesh, all);
        for (int r = 0; r < c->launch.size && st == OK; r++)
            if (!mesh_equal(&all[r], mesh))
                st = status_fail(ERR_INVALID, "rank %d has the mesh %s, rank %d has %s", r, mesh_format(&all[r], there),
                                 c->launch.rank, mesh_format(mesh, here));
        free(all);
        TRY(st);
    }
    for (int lane = LANE_WORLD; lane < LANES; lane++) {
        struct mesh_group g = mesh_group_of(mesh, (enum lane)lane, c->place);
        TRY(group_make(c, (enum lane)lane, g.members, g.member, g.first, g.stride));
    }
    c->mesh = *mesh;
    return OK;
}

static int same_host(const struct comm *c, int rank, int other)
{
    return strcmp(c->peer[rank].host, c->peer[other].host) == 0;
}

void group_set_places(struct comm *c)
{
    int places = 0;
    c->per_host = 0;
    for (int first = 0; first < c->launch.size; first++) {
        int known = 0, before = places;
        for (int r = 0; r < first && !known; r++)
            known = same_host(c, r, first);
        for (int r = first; r < c->launch.size && !known; r++)
            if (same_host(c, r, first)) {
                c->place = r == c->launch.rank ? places : c->place;
                c->rank_at[places++] = r;
            }
        c->per_host = (int)gcd_i64(places - before, c->per_host);
    }
}

/* Writes "dp 2, ring 1, ulysses 4": the degrees from the outermost dimension to the innermost. */
static void describe_nesting(const struct mesh *m, char *text, size_t bytes)
{
    size_t n = 0;
    text[0] = 0;
    for (int depth = MESH_DIMS - 1; depth >= 0; depth--)
        for (int d = 0; d < MESH_DIMS; d++)
            if (mesh_rows[d].depth == depth && !mesh_rows[d].divides && mesh_tells(m, (enum mesh_dim)d) && n < bytes)
                n += (size_t)snprintf(text + n, bytes - n, "%s%s %d", n ? ", " : "", mesh_rows[d].key, m->degree[d]);
    if (m->degree[MESH_EP] > 1 && n < bytes)
        snprintf(text + n, bytes - n, ", experts of each layer shared out to %d ranks", m->degree[MESH_EP]);
}

void comm_describe(const struct comm *c, char *text, size_t bytes)
{
    char mesh[2 * MESH_TEXT];
    int moved = 0;
    for (int p = 0; p < c->launch.size; p++)
        moved |= c->rank_at[p] != p;
    describe_nesting(&c->mesh, mesh, sizeof mesh);
    snprintf(text, bytes, "%d rank%s (%s) on %d host%s: %s%s", c->launch.size, c->launch.size > 1 ? "s" : "", c->launch.source,
             c->hosts, c->hosts > 1 ? "s" : "", mesh, moved ? ", placed host by host" : "");
}

void comm_describe_span(const struct comm *c, char *text, size_t bytes)
{
    text[0] = 0;
    for (int p = 0; p < c->launch.size; p++) {
        int first = c->rank_at[p / c->mesh.degree[MESH_ULYSSES] * c->mesh.degree[MESH_ULYSSES]], r = c->rank_at[p];
        if (same_host(c, first, r))
            continue;
        snprintf(
            text, bytes,
            "remark: the ulysses group of rank %d on %s has rank %d on %s: its all-to-alls cross the network, which a ulysses "
            "degree that divides every host's number of ranks avoids",
            first, c->peer[first].host, r, c->peer[r].host);
        return;
    }
}

int comm_rank(const struct comm *c)
{
    return c->launch.rank;
}

int comm_size(const struct comm *c)
{
    return c->launch.size;
}

int comm_local_rank(const struct comm *c)
{
    return c->launch.local_rank;
}

int comm_local_size(const struct comm *c)
{
    return c->launch.local_size;
}

int comm_place(const struct comm *c)
{
    return c->place;
}

int comm_rank_at(const struct comm *c, int place)
{
    return c->rank_at[place];
}

int comm_per_host(const struct comm *c)
{
    return c->per_host;
}

int comm_hosts(const struct comm *c)
{
    return c->hosts;
}

const char *comm_source(const struct comm *c)
{
    return c->launch.source;
}

struct mesh comm_mesh(const struct comm *c)
{
    return c->mesh;
}

int comm_member(const struct comm *c, enum lane lane)
{
    return c->group[lane - LANE_WORLD].me;
}

void comm_list_members(const struct comm *c, uint16_t member[RECORD_GROUPS])
{
    for (int l = LANE_WORLD; l < LANES; l++)
        if (lane_in_record((enum lane)l) >= 0)
            member[lane_in_record((enum lane)l)] = (uint16_t)c->group[l - LANE_WORLD].me;
}

struct comm_traffic comm_bytes_sent(const struct comm *c, enum lane lane)
{
    return c->group[lane - LANE_WORLD].sent;
}

struct mesh_group comm_group_of(const struct comm *c, enum lane lane)
{
    const struct group *g = &c->group[lane - LANE_WORLD];
    return (struct mesh_group){g->members, g->me, g->first, g->stride};
}

const char *comm_host(const struct comm *c, int rank)
{
    return c->peer[rank].host;
}
