/* The end of the communication, and naps between two looks at it. */
#include "comm/state.h"

#include "base/clock.h"

#include <stdio.h>

int comm_broken(const struct comm *c)
{
    return c->broken != OK;
}

void comm_fail(struct comm *c, enum status code, const char *sentence)
{
    if (c->broken != OK)
        return;
    char own[sizeof c->sentence];
    snprintf(own, sizeof own, "%s", sentence);
    if (c->hosts > 1)
        status_fail(code, "rank %d on %s failed: %.840s", c->launch.rank, c->launch.host, own);
    else
        status_fail(code, "rank %d failed: %.900s", c->launch.rank, own);
    failure_break(c, ERR_PEER);
    failure_tell(c);
    status_fail(code, "%s", own);
}

void comm_before_report(struct comm *c, void (*f)(int wait_ms))
{
    atomic_store(&c->before_report, f);
}

void comm_nap(struct comm *c)
{
    const int64_t first = c->crowded ? 40 : 10, longest = c->crowded ? 1000 : 200;
    const int64_t us = first << (c->naps < 40 ? c->naps / 8 : 5);
    c->naps++;
    clock_sleep_ns((us < longest ? us : longest) * 1000);
}
