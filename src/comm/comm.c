/* Joining the other ranks, and leaving them. */
#include "comm/state.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LINGER_SECONDS = 1.0; /* mpiexec ends all ranks soon after one has failed, so the others get time to print */

static enum status meet(struct comm *c)
{
    struct peer mine = {.rank = c->launch.rank};
    memcpy(mine.host, c->launch.host, sizeof mine.host);
    peer_self(&mine);
    TRY(comm_gather(c, &mine, sizeof mine, c->peer));
    for (int r = 0; r < c->launch.size; r++)
        c->peer[r].host[HOST_NAME - 1] = 0;
    peer_locate(c);
    group_set_places(c);
    return OK;
}

enum status comm_create(const struct launch *launch, double timeout_seconds, struct comm **out)
{
    struct comm *c = sys_calloc(1, sizeof *c);
    struct mesh side_by_side = mesh_uniform(1);
    enum status st = OK;
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory for the communicator");
    side_by_side.degree[MESH_DP] = launch->size;
    c->launch = *launch;
    pthread_mutex_init(&c->votes.lock, NULL);
    c->chunk = CHUNK_BYTES;
    comm_set_timeout(c, timeout_seconds);
    c->hosts = 1;
    c->per_host = launch->size;
    c->peer = sys_calloc((size_t)launch->size, sizeof *c->peer);
    c->rank_at = sys_calloc((size_t)launch->size, sizeof *c->rank_at);
    c->votes.heard = sys_calloc((size_t)launch->size, sizeof *c->votes.heard);
    c->behind.place = sys_calloc((size_t)launch->size, sizeof *c->behind.place);
    c->behind.out = sys_calloc(2 * (size_t)launch->size, sizeof *c->behind.out);
    c->behind.silent = sys_calloc((size_t)launch->size, sizeof *c->behind.silent);
    if (!c->peer || !c->rank_at || !c->votes.heard || !c->behind.place || !c->behind.out || !c->behind.silent)
        TRY_GOTO(status_fail(ERR_NOMEM, "out of memory for %d ranks", launch->size), fail);
    for (int r = 0; r < launch->size; r++)
        /* the host's name is not known before the ranks have met */
        snprintf(c->peer[r].host, sizeof c->peer[r].host, "an unknown host");
    TRY_GOTO(host_create(c), fail);
    if (launch->size > 1) {
        TRY_GOTO(wire_create(launch, timeout_seconds, &c->wire), fail);
        TRY_GOTO(wire_reserve(c->wire, CHANNEL_CONTROL, 1 + 4 * launch->size), fail);
        TRY_GOTO(wire_reserve(c->wire, CHANNEL_HOST, 2), fail);
        TRY_GOTO(failure_listen(c), fail);
        TRY_GOTO(meet(c), fail);
        c->crowded = 2 * c->launch.local_size > cgroup_cores();
        TRY_GOTO(lastword_create(c), fail);
    }
    TRY_GOTO(comm_set_mesh(c, &side_by_side), fail);
    *out = c;
    return OK;
fail:
    failure_break(c, st); /* makes comm_destroy leave MPI without finalizing it */
    comm_destroy(c);
    return st;
}

enum status comm_create_self(struct comm **out)
{
    struct launch alone;
    launch_alone(&alone);
    return comm_create(&alone, 600, out);
}

enum status comm_create_alone(const struct comm *of, struct comm **out)
{
    struct launch alone = of->launch;
    alone.rank = 0;
    alone.size = 1;
    return comm_create(&alone, 600, out);
}

void comm_set_timeout(struct comm *c, double seconds)
{
    c->timeout_ns = (int64_t)(seconds * 1e9);
}

/* Keeps sending for a while, so that notices reach the others. Ranks that a notice has told linger, too: other ranks may still be
 * computing and know nothing. */
static void linger(struct comm *c)
{
    double until = clock_seconds() + LINGER_SECONDS;
    const struct wire_event *event;
    int n;
    while (clock_seconds() < until) {
        if (wire_test(c->wire, CHANNEL_CONTROL, &event, &n) != OK)
            return;
        comm_nap(c);
    }
}

void comm_destroy(struct comm *c)
{
    if (!c)
        return;
    lastword_destroy(c); /* from here on another rank's end is no failure */
    if (c->wire && c->broken == OK)
        (void)comm_barrier(c); /* has a deadline, unlike MPI_Finalize */
    if (c->wire && c->broken != OK) {
        linger(c);
        wire_destroy(c->wire, 0);
        return; /* MPI may still write to this memory */
    }
    wire_destroy(c->wire, (double)c->timeout_ns * 1e-9);
    group_free(c);
    free(c->host_room);
    free(c->host_all);
    free(c->peer);
    free(c->rank_at);
    free(c->votes.heard);
    free(c->behind.place);
    free(c->behind.out);
    free(c->behind.silent);
    pthread_mutex_destroy(&c->votes.lock);
    free(c);
}
