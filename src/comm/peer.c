/* The processes of other ranks, as far as this host shows them. */
#include "comm/state.h"

#include "base/process.h"

#include <string.h>
#include <unistd.h>

void peer_self(struct peer *p)
{
    p->pid = (int32_t)getpid();
    process_state(getpid(), &p->born);
}

void peer_locate(struct comm *c)
{
    c->hosts = 0;
    c->launch.local_size = c->launch.local_rank = 0;
    for (int r = 0; r < c->launch.size; r++) {
        uint64_t born = 0;
        struct peer *p = &c->peer[r];
        int same = strcmp(p->host, c->launch.host) == 0, earlier = 0;
        p->here = same && r != c->launch.rank && process_state(p->pid, &born) != 0 && born == p->born;
        c->launch.local_size += same;
        c->launch.local_rank += same && r < c->launch.rank;
        for (int q = 0; q < r && !earlier; q++)
            earlier = strcmp(c->peer[q].host, p->host) == 0;
        c->hosts += !earlier;
    }
}

enum peer_life peer_look(const struct peer *p)
{
    uint64_t born = 0;
    char state = process_state(p->pid, &born);
    if (state == 0 || state == 'Z' || state == 'X' || born != p->born)
        return PEER_DEAD;
    return state == 'T' ? PEER_STOPPED : PEER_ALIVE;
}

int peer_dead(const struct comm *c)
{
    for (int r = 0; r < c->launch.size; r++)
        if (c->peer[r].here && peer_look(&c->peer[r]) == PEER_DEAD)
            return r;
    return -1;
}
