/* Ranks, mesh and the groups of the comm lanes. */
#include "comm/state.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status group_make(struct comm *c, enum lane lane, int members, int me, int first, int stride)
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
    const struct mesh m = *mesh;
    if (m.dp < 1 || m.ulysses < 1 || m.ring < 1 || (int64_t)m.dp * m.ulysses * m.ring != c->launch.size)
        return status_fail(ERR_INVALID, "the mesh dp=%d,ulysses=%d,ring=%d has %lld ranks, but %d were started (%s)", m.dp,
                           m.ulysses, m.ring, (long long)m.dp * m.ulysses * m.ring, c->launch.size, c->launch.source);
    if (c->wire) {
        int mine[3] = {m.dp, m.ulysses, m.ring}, (*all)[3] = sys_malloc((size_t)c->launch.size * sizeof *all);
        if (!all)
            return status_fail(ERR_NOMEM, "out of memory for the mesh of %d ranks", c->launch.size);
        enum status st = comm_gather(c, mine, sizeof mine, all);
        for (int r = 0; r < c->launch.size && st == OK; r++)
            if (memcmp(all[r], mine, sizeof mine) != 0)
                st = status_fail(ERR_INVALID,
                                 "rank %d has the mesh dp=%d,ulysses=%d,ring=%d, rank %d has dp=%d,ulysses=%d,ring=%d", r,
                                 all[r][0], all[r][1], all[r][2], c->launch.rank, m.dp, m.ulysses, m.ring);
        free(all);
        TRY(st);
    }
    int rank = c->launch.rank, j = rank % m.ulysses, i = rank / m.ulysses % m.ring, d = rank / m.ulysses / m.ring;
    TRY(group_make(c, LANE_WORLD, c->launch.size, rank, 0, 1));
    TRY(group_make(c, LANE_ULYSSES, m.ulysses, j, rank - j, 1));
    TRY(group_make(c, LANE_RING, m.ring, i, d * m.ring * m.ulysses + j, m.ulysses));
    c->mesh = m;
    return OK;
}

void comm_describe(const struct comm *c, char *text, size_t bytes)
{
    const struct mesh m = c->mesh;
    int n = snprintf(text, bytes, "%d rank%s (%s) on %d host%s: dp %d, ring %d, ulysses %d", c->launch.size,
                     c->launch.size > 1 ? "s" : "", c->launch.source, c->hosts, c->hosts > 1 ? "s" : "", m.dp, m.ring, m.ulysses);
    for (int first = 0; first < c->launch.size && c->hosts > 1; first += m.ulysses)
        for (int r = first + 1; r < first + m.ulysses; r++)
            if (strcmp(c->peer[r].host, c->peer[first].host) != 0) {
                snprintf(text + n, (size_t)n < bytes ? bytes - (size_t)n : 0,
                         "\nremark: the ulysses group of ranks %d to %d spans the hosts %s and %s; its all-to-alls cross the "
                         "network (a "
                         "smaller ulysses degree, or ranks placed host by host, avoid that)",
                         first, first + m.ulysses - 1, c->peer[first].host, c->peer[r].host);
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

int comm_members(const struct comm *c, enum lane lane)
{
    return c->group[lane - LANE_WORLD].members;
}

int comm_member(const struct comm *c, enum lane lane)
{
    return c->group[lane - LANE_WORLD].me;
}

struct comm_traffic comm_bytes_sent(const struct comm *c, enum lane lane)
{
    return c->group[lane - LANE_WORLD].sent;
}
