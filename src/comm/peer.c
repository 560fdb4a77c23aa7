/* The processes of other ranks, as far as this host shows them. */
#include "comm/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* State letter and start time of a process of this host; 0 if there is none. */
static char process_state(pid_t pid, uint64_t *born)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* not sys_open: a look is not the run's I/O, and may fail */
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *at = strrchr(text, ')'); /* the name may hold anything */
    if (!at || strlen(at) < 3)
        return 0;
    char state = at[2];
    at += 2;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    *born = at ? strtoull(at, NULL, 10) : 0;
    return state;
}

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
