/* Ranks as coroutines of one thread: the order, the time that passes and the faults are drawn from the seed. */
#include "world.h"

#include "base/rng.h"

#include "base/status.h"

#include <errno.h>
#include <signal.h>
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
    int64_t wake_ns, stopped_ns;                   /* stopped_ns: time until which the rank is stopped */
    int64_t points, wire_calls, drive_calls, next; /* next: the next point with a fault */
    char open[DESCRIPTORS];
};

static ucontext_t world;      /* the caller of world_run */
static struct member *member; /* [n] */
static struct faults faults;
static int n, hangs, lives;
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

int world_lives(void)
{
    return lives;
}

/* Returns a fault of a rank of that kind, due at that place or call; NULL: there is none. */
static const struct fault *due(enum fault_kind kind, int rank, int64_t at)
{
    for (int i = 0; i < faults.n; i++)
        if (faults.fault[i].kind == kind && faults.fault[i].rank == rank && faults.fault[i].at == at)
            return &faults.fault[i];
    return NULL;
}

/* Finds the next place of the rank with a fault. */
static int64_t next_fault(int rank)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < faults.n; i++)
        if (faults.fault[i].kind <= FAULT_STOP && faults.fault[i].rank == rank && faults.fault[i].at > member[rank].points &&
            faults.fault[i].at < next)
            next = faults.fault[i].at;
    return next;
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
    if (me >= 0) {
        snprintf(member[me].said, sizeof member[me].said, "%s", status_message());
        signals_keep(me);
    }
    self = next;
    swapcontext(from, next == NOBODY ? &world : &member[next].context);
    self = me;
    if (me >= 0) {
        status_fail(OK, "%s", member[me].said);
        signals_bring(me);
    }
    errno = error;
}

static void close_all(struct member *m)
{
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (m->open[fd])
            __real_close(fd);
    memset(m->open, 0, sizeof m->open);
}

/* Kills a rank: its stack and memory stay until the process ends. */
static void kill_rank(int rank)
{
    if (member[rank].life != LIFE_RUNS)
        return;
    member[rank].life = LIFE_KILLED;
    close_all(&member[rank]);
    wire_forget(rank);
}

void world_die(void)
{
    kill_rank(self);
    hand_on(&member[self].context);
    abort(); /* who is dead is not chosen */
}

static void cut_power(void)
{
    host_cut_power();
    for (int r = 0; r < n; r++)
        kill_rank(r);
}

void world_sleep(int64_t ns)
{
    if (self < 0)
        return;
    struct member *m = &member[self];
    const int64_t at = ++m->points;
    const struct fault *stop = due(FAULT_STOP, self, at);
    m->next = next_fault(self);
    if (due(FAULT_KILL, self, at))
        kill_rank(self);
    if (due(FAULT_POWER, self, at))
        cut_power();
    m->wake_ns = now_ns + ns;
    if (stop)
        m->wake_ns = m->stopped_ns = now_ns + stop->value;
    hand_on(&m->context);
    if (due(FAULT_SIGNAL, self, at))
        host_signal(SIGTERM);
}

void world_point(void)
{
    if (self < 0)
        return;
    const int64_t ns = 1 + world_draw(20 * US);
    if (member[self].points + 1 == member[self].next || world_draw(4) == 0) {
        world_sleep(ns);
        return;
    }
    member[self].points++;
    now_ns += ns;
}

int world_is_cut(void)
{
    const int64_t call = ++member[self].wire_calls;
    for (int i = 0; i < faults.n; i++)
        if (faults.fault[i].kind == FAULT_CUT && faults.fault[i].rank == self && call >= faults.fault[i].at)
            return 1;
    return 0;
}

static int is_slow(void)
{
    int slow = 0;
    for (int i = 0; i < faults.n; i++)
        slow |= faults.fault[i].kind == FAULT_SLOW;
    return slow;
}

int world_drive(void)
{
    if (self < 0)
        return 0;
    if (is_slow() && world_draw(4) == 0)
        world_sleep(world_draw(SECOND / 5));
    else
        world_point();
    const struct fault *f = due(FAULT_DRIVE, self, ++member[self].drive_calls);
    return f ? (int)f->value : 0;
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
    signals_bring(self);
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
    lives++;
    wire_reset();
    host_reset();
    signals_reset(ranks);
    for (int r = 0; r < n; r++) {
        ucontext_t *c = &member[r].context;
        member[r].next = next_fault(r);
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
