/* The processes of other ranks on this host. */
#include "comm/state.h"

#include "base/mix.h"
#include "base/process.h"

#include <stdio.h>
#include <string.h>

void peer_self(struct peer *p)
{
    struct process own;
    process_self(&own);
    p->boot = mix_text(1, own.boot);
    p->pid = (int32_t)own.pid;
    p->born = own.born;
}

/* Adds numbers to equal names of different hosts, which copied machines may have, so that names tell hosts apart everywhere. */
static void number_hosts(struct comm *c)
{
    for (int r = 0; r < c->launch.size; r++) {
        struct peer *p = &c->peer[r];
        p->number = 1;
        for (int q = 0; q < r; q++) {
            const struct peer *other = &c->peer[q];
            const int same_name = strcmp(other->host, p->host) == 0;
            if (same_name && other->boot == p->boot) {
                p->number = other->number;
                break;
            }
            if (same_name && other->number >= p->number)
                p->number = other->number + 1;
        }
    }
    for (int r = 0; r < c->launch.size; r++) {
        char name[HOST_NAME];
        memcpy(name, c->peer[r].host, sizeof name);
        if (c->peer[r].number > 1)
            snprintf(c->peer[r].host, sizeof c->peer[r].host, "%.48s (%d)", name, c->peer[r].number);
    }
    memcpy(c->launch.host, c->peer[c->launch.rank].host, sizeof c->launch.host);
}

void peer_locate(struct comm *c)
{
    number_hosts(c);
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
    return state == 'T' || state == 't' ? PEER_STOPPED : PEER_ALIVE;
}

int peer_found(const struct comm *c, enum peer_life life)
{
    for (int r = 0; r < c->launch.size; r++)
        if (c->peer[r].here && peer_look(&c->peer[r]) == life)
            return r;
    return -1;
}
