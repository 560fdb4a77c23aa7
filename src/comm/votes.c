/* Casting and counting the votes of ranks that are about to cut a section short (cut.c). */
#include "comm/state.h"

#include <string.h>

void votes_apply(struct votes *x)
{
    if (atomic_load(&x->decided) && x->own.sections >= x->most.sections)
        atomic_store(&x->cut, 1);
}

static void count(struct comm *c, int rank, const struct cut_vote *v)
{
    struct votes *x = &c->votes;
    if (x->heard[rank])
        return;
    x->heard[rank] = 1;
    x->most.sections = max_i64(x->most.sections, v->sections);
    for (int l = 0; l < COMM_LANES; l++)
        x->most.started[l] = max_i64(x->most.started[l], v->started[l]);
    if (atomic_fetch_add(&x->n_heard, 1) + 1 == c->launch.size)
        atomic_store(&x->decided, 1);
    votes_apply(x);
}

enum status votes_cast(struct comm *c)
{
    struct votes *x = &c->votes;
    if (x->heard[c->launch.rank])
        return OK;
    memset(&x->out, 0, sizeof x->out);
    x->out.origin = c->launch.rank;
    pthread_mutex_lock(&x->lock);
    x->out.vote = x->own;
    count(c, c->launch.rank, &x->own);
    pthread_mutex_unlock(&x->lock);
    for (int r = 0; r < c->launch.size; r++)
        if (r != c->launch.rank)
            TRY(wire_send(c->wire, CHANNEL_CONTROL, 1 + c->launch.size + r, r, &x->out, sizeof x->out));
    return OK;
}

enum status votes_hear(struct comm *c)
{
    pthread_mutex_lock(&c->votes.lock);
    if (c->in.origin >= 0 && c->in.origin < c->launch.size)
        count(c, c->in.origin, &c->in.vote);
    pthread_mutex_unlock(&c->votes.lock);
    return votes_cast(c);
}

int votes_missing(const struct comm *c)
{
    for (int r = 0; r < c->launch.size; r++)
        if (!c->votes.heard[r])
            return r;
    return -1;
}
