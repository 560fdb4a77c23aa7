/* Ranks that stand still: stopped processes of this host, and silent ranks that cannot be seen from here. Such are those in a
 * frozen virtual machine, a stopped container, or a host without a network.
 *
 * They are waited for like slow ones, up to the deadline. After some seconds one line names them, and at the deadline they are
 * named first.
 *
 * The lowest running rank of a host speaks for its host: it sees the stopped processes there. It asks the ranks that it cannot
 * see how far they are (behind.c). It names those that do not answer, unless a lower rank answers and can do so. */
#include "comm/state.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
enum {
    /* looks in a row at which a process must be found stopped: a job that was suspended as a whole wakes up rank after rank */
    STOPPED_LOOKS = 30,
    ROUND = 5,        /* seconds that a rank has for an answer */
    SILENT_AFTER = 5, /* seconds of waiting before the first question; ranks answer while a program runs */
    /* seconds of waiting before the first question between programs, where ranks read and write files and answer nothing */
    BUSY_AFTER = 25,
};

/* Prints a line by one write, so that lines of several ranks do not mix. */
static void print_line(const char *what)
{
    char line[640];
    int n = snprintf(line, sizeof line, "ltrain: %s\n", what);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) {
        /* nobody reads */
    }
}

/* Tells whether another rank is seen running on this host. */
static int goes_on_here(const struct comm *c, int rank)
{
    return c->peer[rank].here && c->peer[rank].stopped == 0;
}

static int speaks_for_host(const struct comm *c)
{
    for (int r = 0; r < c->launch.rank; r++)
        if (goes_on_here(c, r))
            return 0;
    return 1;
}

static void say_stopped(const struct comm *c, int rank)
{
    char text[512];
    const struct peer *p = &c->peer[rank];
    snprintf(text, sizeof text,
             "waiting for rank %d on %s, which is stopped (process %d, by a signal or a debugger), up to %g s (--comm-timeout); "
             "kill -CONT %d lets it go on",
             rank, p->host, (int)p->pid, (double)c->timeout_ns * 1e-9, (int)p->pid);
    print_line(text);
}

static void say_goes_on(const struct comm *c, int rank)
{
    char text[256];
    snprintf(text, sizeof text, "rank %d on %s goes on", rank, c->peer[rank].host);
    print_line(text);
}

void still_look(struct comm *c, int rank, enum peer_life life)
{
    struct peer *p = &c->peer[rank];
    p->stopped = life == PEER_STOPPED ? p->stopped + 1 : 0;
    if (p->stopped >= STOPPED_LOOKS && !p->said && speaks_for_host(c)) {
        p->said = 1;
        say_stopped(c, rank);
    } else if (p->said && life == PEER_ALIVE) {
        p->said = 0;
        say_goes_on(c, rank);
    }
}

/* Tells whether a lower rank that cannot be seen from here has answered: that rank asks the silent ranks, too, and names them. */
static int another_speaks(const struct comm *c)
{
    for (int r = 0; r < c->launch.rank; r++)
        if (!c->peer[r].here && !c->behind.silent[r])
            return 1;
    return 0;
}

static void say_silent(struct comm *c, const struct patience *p)
{
    char text[512], others[48] = "";
    int first = -1, more = 0;
    for (int r = 0; r < c->launch.size; r++) {
        struct peer *q = &c->peer[r];
        if (q->here || r == c->launch.rank)
            continue;
        if (q->said && !c->behind.silent[r])
            say_goes_on(c, r);
        else if (!q->said && c->behind.silent[r] && first < 0)
            first = r;
        else if (!q->said && c->behind.silent[r])
            more++;
        q->said = c->behind.silent[r];
    }
    if (first < 0)
        return;
    if (more > 0)
        snprintf(others, sizeof others, " and %d other%s", more, more > 1 ? "s" : "");
    snprintf(
        text, sizeof text,
        "waiting for rank %d on %s%s, which %s not answered for %d s (stopped or busy, or the host or its network stands still), "
        "up to %g s (--comm-timeout)",
        first, c->peer[first].host, others, more > 0 ? "have" : "has", (int)(p->waited_ns / SECOND),
        (double)c->timeout_ns * 1e-9);
    print_line(text);
}

enum status still_ask(struct comm *c, const struct patience *p)
{
    struct behind *b = &c->behind;
    const int64_t now = clock_ns();
    if (p->waited_ns < (p->between ? BUSY_AFTER : SILENT_AFTER) * SECOND || now - b->round_ns < ROUND * SECOND ||
        !speaks_for_host(c))
        return OK;
    if (now - b->round_ns < 2 * ROUND * SECOND && !another_speaks(c)) /* questions asked longer ago belong to another wait */
        say_silent(c, p);
    b->round_ns = now;
    for (int r = 0; r < c->launch.size; r++)
        if (r != c->launch.rank && !c->peer[r].here)
            TRY(behind_ask_rank(c, r));
    return OK;
}

int still_rank(const struct comm *c, enum peer_life *life)
{
    int silent = -1;
    for (int r = 0; r < c->launch.size; r++) {
        *life = PEER_STOPPED;
        if (c->peer[r].here && c->peer[r].stopped >= 2) /* stopped at one look only, a process may go on at once */
            return r;
        if (silent < 0 && !c->peer[r].here && c->peer[r].said)
            silent = r;
    }
    *life = PEER_ALIVE;
    return silent;
}
