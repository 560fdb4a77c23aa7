/* Ranks as coroutines of one thread: the order, the time that passes and the faults are drawn from the seed. */
#include "world.h"

#include "base/rng.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { DESCRIPTORS = 1024, NOBODY = -1, STACK = 4 << 20 };
static const int64_t US = 1000, SECOND = 1000000000, LONGEST = 200 * INT64_C(1000000000); /* ns of a life */

int __real_close(int fd);

struct member {
    ucontext_t context;
    char said[1024]; /* the sentence of its last failure, which a thread would have for itself */
    enum life life;
    int64_t wake_ns, stopped_ns; /* stopped_ns: time until which the rank is stopped */
    int64_t points, wire_calls, drive_calls;
    char open[DESCRIPTORS];
};

static ucontext_t world;      /* the caller of world_run */
static struct member *member; /* [n] */
static struct faults faults;
static int n, hangs;
static uint64_t seed, draws;
static int64_t now_ns = 1000000000;
static int (*rank_main)(int rank);
static _Thread_local int self = -1; /* other threads belong to no rank */

int world_rank(void)
{
    return self;
}

int world_ranks(void)
{
    return n;
}

enum life world_life(int rank)
{
    return member[rank].life;
}

int world_is_stopped(int rank)
{
    return member[rank].stopped_ns > now_ns;
}

int64_t world_draw(int64_t below)
{
    return (int64_t)rng_below(seed, 0x51, draws++, (uint64_t)below);
}

int64_t world_now(void)
{
    return now_ns;
}

int64_t world_points(int rank)
{
    return member[rank].points;
}

/* Chooses who runs next; lets time pass until somebody can. NOBODY: all have ended. */
static int choose(void)
{
    int64_t first = INT64_MAX;
    int ready[WORLD_MOST], n_ready = 0;
    for (int r = 0; r < n; r++)
        if (member[r].life == LIFE_RUNS && member[r].wake_ns < first)
            first = member[r].wake_ns;
    if (first == INT64_MAX)
        return NOBODY;
    if (first > now_ns)
        now_ns = first;
    for (int r = 0; r < n; r++)
        if (member[r].life == LIFE_RUNS && member[r].wake_ns <= now_ns)
            ready[n_ready++] = r;
    return ready[world_draw(n_ready)];
}

/* Lets the next rank run, or the caller of world_run if none can. `from` goes on once it is chosen again. */
static void hand_on(ucontext_t *from)
{
    const int me = self, error = errno;
    const int next = now_ns > LONGEST ? NOBODY : choose();
    hangs |= now_ns > LONGEST;
    if (next == me)
        return;
    if (me >= 0)
        snprintf(member[me].said, sizeof member[me].said, "%s", status_message());
    self = next;
    swapcontext(from, next == NOBODY ? &world : &member[next].context);
    self = me;
    if (me >= 0)
        status_fail(OK, "%s", member[me].said);
    errno = error;
}

static void close_all(struct member *m)
{
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (m->open[fd])
            __real_close(fd);
    memset(m->open, 0, sizeof m->open);
}

void world_sleep(int64_t ns)
{
    if (self < 0)
        return;
    struct member *m = &member[self];
    m->points++;
    if (m->points == faults.kill_at[self]) { /* its stack and memory stay until the process ends */
        m->life = LIFE_KILLED;
        close_all(m);
        wire_forget(self);
    }
    m->wake_ns = now_ns + ns;
    if (m->points == faults.stop_at[self])
        m->wake_ns = m->stopped_ns = now_ns + faults.stopped_ns[self];
    hand_on(&m->context);
}

void world_point(void)
{
    if (self < 0)
        return;
    const int64_t ns = 1 + world_draw(20 * US);
    const int64_t next = member[self].points + 1;
    if (next == faults.kill_at[self] || next == faults.stop_at[self] || world_draw(4) == 0) {
        world_sleep(ns);
        return;
    }
    member[self].points++;
    now_ns += ns;
}

int world_is_cut(void)
{
    return faults.cut_at[self] && ++member[self].wire_calls >= faults.cut_at[self];
}

int world_drive(void)
{
    if (self < 0)
        return 0;
    if (faults.slow && world_draw(4) == 0)
        world_sleep(world_draw(SECOND / 5));
    else
        world_point();
    return ++member[self].drive_calls == faults.fail_at[self] ? faults.fail_with[self] : 0;
}

void world_opened(int fd)
{
    if (self >= 0 && fd >= 0 && fd < DESCRIPTORS)
        member[self].open[fd] = 1;
}

void world_closed(int fd)
{
    if (self >= 0 && fd >= 0 && fd < DESCRIPTORS)
        member[self].open[fd] = 0;
}

static void live(void)
{
    struct member *m = &member[self];
    const int failed = rank_main(self);
    m->life = failed ? LIFE_FAILED : LIFE_ENDED;
    hand_on(&m->context);
}

int world_run(uint64_t with_seed, int ranks, const struct faults *with_faults, int (*run)(int rank))
{
    member = calloc((size_t)ranks, sizeof *member);
    if (!member)
        abort();
    n = ranks;
    seed = with_seed;
    faults = *with_faults;
    rank_main = run;
    draws = 0;
    now_ns = SECOND;
    hangs = 0;
    wire_reset();
    for (int r = 0; r < n; r++) {
        ucontext_t *c = &member[r].context;
        void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (stack == MAP_FAILED || getcontext(c) != 0)
            abort();
        c->uc_stack.ss_sp = stack;
        c->uc_stack.ss_size = STACK;
        makecontext(c, live, 0);
    }
    hand_on(&world);
    return hangs ? -1 : 0;
}
