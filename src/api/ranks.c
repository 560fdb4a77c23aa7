/* The communicator of sessions. In a process without other ranks each session has its own; with several ranks all sessions share one,
 * since MPI starts once in a process. */
#include "api/session.h"

#include <stdlib.h>
#include <string.h>

static struct comm *world;  /* all ranks, from the first session to the end of the process; NULL: there are none, or not yet */
static int world_is_in_use; /* 1: a session has it */

static void leave_world(void)
{
    comm_destroy(world);
    world = NULL;
}

static enum status take_world(const struct launch *launch, double patience)
{
    if (world_is_in_use)
        return status_fail(ERR_INVALID, "another session is open, and %d ranks have one at a time: close it first", launch->size);
    if (world && comm_broken(world))
        return status_fail(ERR_PEER, "an earlier session lost a rank (%s): start the program again", status_message());
    if (world)
        return OK;
    TRY(comm_create(launch, patience, &world));
    atexit(leave_world);
    return OK;
}

/* Makes sure that all ranks have the same version of the library. */
static enum status compare_versions(struct comm *c)
{
    char first[64] = "";
    snprintf(first, sizeof first, "%s, interface %d", ltrain_version(), LTRAIN_API);
    char own[64];
    memcpy(own, first, sizeof own);
    TRY(comm_broadcast(c, 0, first, sizeof first));
    return comm_agree(c, strcmp(own, first) == 0
                             ? OK
                             : status_fail(ERR_INVALID, "this rank has %s, and rank 0 %s: all need the same", own, first));
}

enum status api_join(const struct settings_flags *flags, ltrain *s)
{
    struct launch_flags own;
    struct launch launch;
    const double patience = settings_patience(flags, "comm-timeout");
    TRY(settings_launch(flags, &own.rank, &own.size, &own.local_rank));
    TRY(launch_detect(&own, &launch));
    s->alone = launch.size == 1;
    if (s->alone)
        return comm_create(&launch, patience, &s->comm);
    TRY(take_world(&launch, patience));
    s->comm = world;
    world_is_in_use = 1;
    return compare_versions(world);
}

void api_part(ltrain *s)
{
    if (s->alone)
        comm_destroy(s->comm);
    else if (s->comm)
        world_is_in_use = 0;
    s->comm = NULL;
}
