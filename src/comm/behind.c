/* Finding the rank that is behind, where a library carries the messages and does not say for whom it waits.
 *
 * A rank that has waited for half of the deadline asks all others how far they are, and they answer. At the deadline it names a
 * rank that has not answered, else the one that is furthest behind. */
#include "comm/state.h"

#include <string.h>

enum { UNKNOWN = -1 };

/* Sends this rank's place in the program to another rank. Nothing is sent while the last message of this kind to that rank is
 * under way. */
static enum status say(struct comm *c, int kind, int to)
{
    const int n = c->launch.size, mine = (kind == NOTICE_ASKS ? 0 : n) + to, slot = 1 + 2 * n + mine;
    struct notice *out = &c->behind.out[mine];
    if (wire_in_use(c->wire, CHANNEL_CONTROL, slot))
        return OK;
    memset(out, 0, sizeof *out);
    *out = (struct notice){.status = kind, .origin = c->launch.rank, .place = c->behind.own};
    return wire_send(c->wire, CHANNEL_CONTROL, slot, to, out, sizeof *out);
}

enum status behind_ask(struct comm *c)
{
    if (c->behind.asked)
        return OK;
    c->behind.asked = 1;
    for (int r = 0; r < c->launch.size; r++) {
        c->behind.place[r] = UNKNOWN;
        if (r != c->launch.rank)
            TRY(say(c, NOTICE_ASKS, r));
    }
    return OK;
}

enum status behind_ask_rank(struct comm *c, int rank)
{
    c->behind.silent[rank] = 1;
    return say(c, NOTICE_ASKS, rank);
}

enum status behind_hear(struct comm *c)
{
    const int from = c->in.origin;
    if (from < 0 || from >= c->launch.size || from == c->launch.rank)
        return OK;
    c->behind.place[from] = c->in.place;
    c->behind.silent[from] = 0;
    return c->in.status == NOTICE_ASKS ? say(c, NOTICE_ANSWERS, from) : OK;
}

int behind_rank(const struct comm *c)
{
    int last = UNKNOWN;
    for (int r = 0; r < c->launch.size && c->behind.asked; r++) {
        if (r == c->launch.rank)
            continue;
        if (c->behind.place[r] == UNKNOWN)
            return r;
        if (c->behind.place[r] < c->behind.own && (last == UNKNOWN || c->behind.place[r] < c->behind.place[last]))
            last = r;
    }
    return last;
}
