/* Ends of waiting: deadlines, dead processes of this host, and notices of failure. Votes (cut.c) come as notices, too. A stopped
 * process is waited for like a slow one (still.c).
 *
 * 1. The first failure that a rank learns of (own deadline, a dead neighbour, a notice, its own comm_fail) breaks its
 * communicator; later ones change nothing.
 *
 * 2. A rank that breaks its communicator by its own knowledge tells all others (failure_tell), once; a notice is not passed on.
 *
 * 3. A broken communicator starts nothing any more; every call returns the first failure. */
#include "comm/state.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>

static const int64_t MS = 1000000;
enum {
    LOOK_MS = 100,
    LAST_WORDS_MS = 50,
    LOOKS_AT = 16, /* processes per look; hosts with more ranks take several looks */
    /* ms: a longer time between two looks means that this process was stopped; the excess does not count as waiting */
    LONGEST_PAUSE = 1000
};

enum status failure_broken(const struct comm *c)
{
    return c->broken == OK ? OK : status_fail(c->broken, "%s", c->sentence);
}

enum status failure_break(struct comm *c, enum status code)
{
    if (c->broken == OK) {
        snprintf(c->sentence, sizeof c->sentence, "%s", status_message());
        c->broken = code;
        lastword_broken(c);
    }
    return failure_broken(c);
}

enum status failure_break_and_tell(struct comm *c)
{
    int news = c->broken == OK;
    if (news)
        comm_is_to_report(c, SIGNAL_MS);
    enum status st = failure_break(c, ERR_PEER);
    if (news)
        failure_tell(c);
    return st;
}

enum status failure_of_wire(struct comm *c, enum status st)
{
    if (st == OK || c->broken != OK)
        return st;
    char said[sizeof c->sentence];
    snprintf(said, sizeof said, "%s", status_message());
    status_fail(st, "rank %d on %s: %.900s", c->launch.rank, c->launch.host, said);
    return failure_break_and_tell(c);
}

void patience_begin(struct patience *p)
{
    *p = (struct patience){.last_ns = clock_ns(), .looked_ns = clock_ns()};
}

enum status failure_listen(struct comm *c)
{
    return wire_recv(c->wire, CHANNEL_CONTROL, 0, -1, &c->in, sizeof c->in);
}

static enum status has_come(struct comm *c, int *heard)
{
    const struct wire_event *event;
    int n;
    *heard = 0;
    TRY(wire_test(c->wire, CHANNEL_CONTROL, &event, &n));
    for (int i = 0; i < n; i++)
        *heard |= event[i].slot == 0;
    return OK;
}

enum status failure_hear(struct comm *c)
{
    for (;;) {
        int heard;
        TRY(has_come(c, &heard));
        if (!heard)
            return OK;
        if (c->in.status < OK) {
            comm_is_to_report(c, 0);
            c->in.text[sizeof c->in.text - 1] = 0;
            status_fail(ERR_PEER, "%s", c->in.text);
            return failure_break(c, ERR_PEER);
        }
        TRY(failure_of_wire(c, c->in.status == OK ? votes_hear(c) : behind_hear(c)));
        TRY(failure_of_wire(c, failure_listen(c)));
    }
}

/* Waits a little for a dead rank's last notice: it says why it leaves, and that may still be on its way. */
static enum status hear_last_words(struct comm *c)
{
    for (int i = 0; i < LAST_WORDS_MS; i++) {
        TRY(failure_hear(c));
        clock_sleep_ns(MS);
    }
    return OK;
}

static enum status look_at(struct comm *c, int rank, const char *what)
{
    const struct peer *p = &c->peer[rank];
    enum peer_life life = peer_look(p);
    if (life != PEER_DEAD) {
        still_look(c, rank, life);
        return OK;
    }
    TRY(hear_last_words(c));
    status_fail(ERR_PEER, "rank %d on %s has died (process %d); rank %d was in %s", rank, p->host, (int)p->pid, c->launch.rank,
                what);
    return failure_break_and_tell(c);
}

/* Fails after the deadline, naming a rank that stands still, else the one that is waited for. */
static enum status give_up(struct comm *c, int missing, const char *what)
{
    const double seconds = (double)c->timeout_ns * 1e-9;
    enum peer_life life;
    const int still = still_rank(c, &life);
    if (still >= 0 && life == PEER_STOPPED)
        status_fail(ERR_PEER,
                    "rank %d on %s is stopped (process %d, by a signal or a debugger) and has not answered rank %d for %g s "
                    "(--comm-timeout) in %s",
                    still, c->peer[still].host, (int)c->peer[still].pid, c->launch.rank, seconds, what);
    else if (still >= 0 || missing >= 0)
        status_fail(ERR_PEER, "rank %d on %s has not answered rank %d for %g s (--comm-timeout) in %s",
                    still >= 0 ? still : missing, c->peer[still >= 0 ? still : missing].host, c->launch.rank, seconds, what);
    else
        status_fail(ERR_PEER, "rank %d has waited %g s (--comm-timeout) in %s", c->launch.rank, seconds, what);
    return failure_break_and_tell(c);
}

/* Tells whether the deadline has passed. A rank that knows who stands still gives up first, so that all hear its sentence. */
static int is_over(const struct comm *c, const struct patience *p)
{
    enum peer_life life;
    const int64_t timeout = c->timeout_ns;
    return p->waited_ns >= timeout &&
           (p->waited_ns >= timeout + min_i64(timeout / 4, LONGEST_PAUSE * MS) || still_rank(c, &life) >= 0);
}

enum status patience_look(struct comm *c, struct patience *p, int missing, const char *what)
{
    TRY(failure_broken(c));
    int64_t now = clock_ns();
    p->waited_ns += min_i64(now - p->last_ns, LONGEST_PAUSE * MS);
    p->last_ns = now;
    if (now - p->looked_ns < MS)
        return OK;
    int full_look = now / (LOOK_MS * MS) != p->looked_ns / (LOOK_MS * MS);
    p->looked_ns = now;
    TRY(failure_hear(c));
    if (is_over(c, p))
        return give_up(c, missing, what);
    if (full_look)
        TRY(failure_of_wire(c, still_ask(c, p)));
    for (int k = 0, seen = 0; full_look && k < c->launch.size && seen < LOOKS_AT; k++) {
        int rank = c->next_look;
        c->next_look = (c->next_look + 1) % c->launch.size;
        if (!c->peer[rank].here)
            continue;
        seen++;
        TRY(look_at(c, rank, what));
    }
    return OK;
}

void failure_tell(struct comm *c)
{
    if (!c->wire || c->told)
        return;
    c->told = 1;
    c->out = (struct notice){.status = c->broken, .origin = c->launch.rank};
    snprintf(c->out.text, sizeof c->out.text, "%.*s", (int)sizeof c->out.text - 1, c->sentence);
    for (int r = 0; r < c->launch.size; r++)
        if (r != c->launch.rank)
            (void)wire_send(c->wire, CHANNEL_CONTROL, 1 + r, r, &c->out, sizeof c->out);
}

void comm_wait_program(struct comm *c)
{
    c->programs++;
}

void comm_wait_begin(struct comm *c, enum lane lane, int op, int64_t place)
{
    c->behind.own = c->programs * ((int64_t)1 << 32) + place;
    c->behind.asked = 0;
    for (int l = LANE_WORLD; l < LANES; l++)
        lastword_doing(c, (enum lane)l, l == (int)lane ? op : -1);
    patience_begin(&c->outside);
}

enum status comm_wait_look(struct comm *c, const char *what, int counts)
{
    if (!c->wire)
        return OK;
    if (!counts) {
        c->outside.waited_ns = 0;
        c->outside.last_ns = clock_ns();
    }
    if (c->outside.waited_ns > c->timeout_ns / 2)
        TRY(failure_of_wire(c, behind_ask(c)));
    return patience_look(c, &c->outside, behind_rank(c), what);
}
