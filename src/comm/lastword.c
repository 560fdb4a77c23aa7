/* The last word: why this rank ends, on stderr, if the thread that talks to MPI cannot say it any more.
 *
 * MPI ends a process by itself (_exit, inside a call) when a connection breaks, for example over TCP when another rank is killed.
 * mpiexec kills the remaining ranks a second or two after one has died. So a thread waits for the processes of this host and for
 * nothing else. The first of these says the sentence: the caller (comm_speak), this thread a little later, or the process on its
 * way out. */
#include "comm/state.h"

#include "base/clock.h"
#include "base/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    GRACE_MS =
        700,       /* time for the caller to print its own sentence, which says more; mpiexec waits two seconds before it kills */
    TICK_MS = 500, /* time between looks at a thread inside MPI */
    STUCK_MS = 5000, /* time inside one call of MPI, after a rank has died, from which on the call counts as stuck */
    EXIT_LOOKS = 30, /* looks, 10 ms each, for a dead process: its connections close before it is seen to be dead */
};

static const int64_t MS = 1000000;

struct lastword {
    const struct comm *comm;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards remark and sentence */
    char remark[512], sentence[1024];
    struct pollfd *fd; /* [0]: eventfd that tells the thread to leave; then a descriptor for each process */
    int *rank;         /* rank of fd[i] */
    int fds;
    atomic_int said;
    atomic_int doing[COMM_LANES]; /* 1 + the op in flight; 0: none */
    _Atomic int64_t broken_ns;    /* time of the failure; 0: none */
};

static struct lastword *_Atomic armed; /* used on the way out of the process */

/* Writes the last word without stdio, since the process may be in any state. It is one write, so that sentences of several ranks
 * do not mix. wait_ms: as in comm_before_report. */
static void say(struct lastword *w, const char *cause, int wait_ms)
{
    char text[2048], now[96] = "";
    const struct comm *c = w->comm;
    int n;
    if (atomic_exchange(&w->said, 1))
        return;
    comm_is_to_report(c, wait_ms);
    for (int l = COMM_LANES - 1; l >= 0; l--) {
        int op = atomic_load(&w->doing[l]);
        if (op)
            snprintf(now, sizeof now, "; rank %d was in %s on the %s lane", c->launch.rank, op_name((enum op_kind)(op - 1)),
                     lane_name((enum lane)(LANE_WORLD + l)));
    }
    if (pthread_mutex_trylock(&w->mutex) == 0) { /* the thread that holds it may be the one that ends the process */
        n = snprintf(text, sizeof text, "ltrain: rank %d: %s%s%s%s\n", c->launch.rank, w->sentence[0] ? w->sentence : cause,
                     w->sentence[0] ? "" : now, w->remark[0] ? "; " : "", w->remark);
        pthread_mutex_unlock(&w->mutex);
    } else {
        n = snprintf(text, sizeof text, "ltrain: rank %d: %s%s\n", c->launch.rank, cause, now);
    }
    if (write(STDERR_FILENO, text, (size_t)n) < 0) {
        /* nobody reads */
    }
}

static void describe_dead(const struct comm *c, int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d on %s has died (process %d)", rank, c->peer[rank].host, (int)c->peer[rank].pid);
}

/* Describes a call that does not return: over shared memory MPI waits inside a call for a rank that was stopped in the middle of
 * a message. */
static void describe_stuck(const struct comm *c, double seconds, char *text, size_t bytes)
{
    const int n = snprintf(text, bytes, "MPI has not come back from a call for %.3g s", seconds),
              rank = peer_found(c, PEER_STOPPED);
    if (rank >= 0)
        snprintf(text + n, bytes - (size_t)n, "; rank %d on %s is stopped (process %d, by a signal or a debugger)", rank,
                 c->peer[rank].host, (int)c->peer[rank].pid);
}

/* Replaces the C library's _exit, for Open MPI's libraries, too: says the last word on the way out. */
void _exit(int status)
{
    struct lastword *w = atomic_load(&armed);
    void (*leave)(int);
    char cause[256] = "MPI has lost the connection to another rank and ended this one";
    if (w && !atomic_load(&w->said) && wire_calls() % 2) {
        int dead = -1;
        for (int i = 0; i < EXIT_LOOKS && (dead = peer_found(w->comm, PEER_DEAD)) < 0 && w->comm->launch.local_size > 1; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (dead >= 0)
            describe_dead(w->comm, dead, cause, sizeof cause);
        say(w, cause, SIGNAL_MS);
    }
    const char *starting = wire_starting();
    if (starting[0] && write(STDERR_FILENO, starting, strlen(starting)) < 0) {
        /* nobody reads */
    }
    *(void **)&leave = dlsym(RTLD_NEXT, "_exit"); /* perhaps a sanitizer's */
    if (leave)
        leave(status);
    for (;;)
        syscall(SYS_exit_group, status);
}

static void *attend(void *arg)
{
    struct lastword *w = arg;
    char cause[256] = "";
    int dead = -1;
    int64_t known_ns = 0, inside_ms = 0, last_ns = clock_ns();
    unsigned before = 0;
    for (;;) {
        /* once a process has died, only fd[0] is polled */
        int ready = poll(w->fd, dead < 0 ? (nfds_t)w->fds : 1, dead < 0 ? TICK_MS : TICK_MS / 5);
        /* limited: a longer pause means that this process was stopped */
        int64_t now = clock_ns(), passed_ms = min_i64((now - last_ns) / MS, 2 * TICK_MS);
        last_ns = now;
        if (ready > 0 && w->fd[0].revents)
            return NULL;
        for (int i = 1; i < w->fds && ready > 0 && dead < 0; i++)
            if (w->fd[i].revents)
                describe_dead(w->comm, dead = w->rank[i], cause, sizeof cause);
        if (known_ns == 0)
            known_ns = dead >= 0 ? now : atomic_load(&w->broken_ns);
        if (known_ns > 0 && now - known_ns > GRACE_MS * MS)
            say(w, cause, 0);
        unsigned calls = wire_calls();
        inside_ms = calls % 2 && calls == before ? inside_ms + passed_ms : 0;
        before = calls;
        if (inside_ms <= (known_ns > 0 ? STUCK_MS : atomic_load(&w->comm->timeout_ns) / MS))
            continue;
        describe_stuck(w->comm, (double)inside_ms * 1e-3, cause, sizeof cause);
        say(w, cause, 0);
        _exit(1);
    }
}

/* Opens a descriptor for each process on this host. A process that is gone already has none; the ordinary looks find it. */
static void add_peers(struct lastword *w)
{
    const struct comm *c = w->comm;
    for (int r = 0; r < c->launch.size; r++) {
        int fd = c->peer[r].here ? (int)syscall(SYS_pidfd_open, (pid_t)c->peer[r].pid, 0) : -1;
        if (fd < 0)
            continue;
        w->fd[w->fds] = (struct pollfd){.fd = fd, .events = POLLIN};
        w->rank[w->fds++] = r;
    }
}

static void free_word(struct lastword *w)
{
    for (int i = 0; i < w->fds; i++)
        if (w->fd[i].fd >= 0)
            close(w->fd[i].fd);
    free(w->fd);
    free(w->rank);
    free(w);
}

enum status lastword_create(struct comm *c)
{
    struct lastword *w = sys_calloc(1, sizeof *w);
    sigset_t all, old;
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory for the communicator");
    w->comm = c;
    w->fd = sys_calloc((size_t)c->launch.size + 1, sizeof *w->fd);
    w->rank = sys_calloc((size_t)c->launch.size + 1, sizeof *w->rank);
    if (!w->fd || !w->rank) {
        free_word(w);
        return status_fail(ERR_NOMEM, "out of memory for %d ranks", c->launch.size);
    }
    w->fd[w->fds++] = (struct pollfd){.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    add_peers(w);
    pthread_mutex_init(&w->mutex, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    int error = w->fd[0].fd < 0 ? errno : pthread_create(&w->thread, NULL, attend, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        free_word(w);
        return status_fail(ERR_NOMEM, "cannot start a thread for the communicator: %s", strerror(error));
    }
    c->word = w;
    atomic_store(&armed, w);
    return OK;
}

void lastword_destroy(struct comm *c)
{
    struct lastword *w = c->word;
    uint64_t one = 1;
    if (!w)
        return;
    c->word = NULL;
    atomic_store(&armed, NULL);
    while (write(w->fd[0].fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->mutex);
    free_word(w);
}

void lastword_broken(struct comm *c)
{
    if (!c->word)
        return;
    pthread_mutex_lock(&c->word->mutex);
    snprintf(c->word->sentence, sizeof c->word->sentence, "%s", c->sentence);
    pthread_mutex_unlock(&c->word->mutex);
    atomic_store(&c->word->broken_ns, clock_ns());
}

void lastword_doing(struct comm *c, enum lane lane, int op)
{
    if (c->word)
        atomic_store(&c->word->doing[lane - LANE_WORLD], op + 1);
}

void comm_remark(struct comm *c, const char *text)
{
    if (!c->word)
        return;
    pthread_mutex_lock(&c->word->mutex);
    snprintf(c->word->remark, sizeof c->word->remark, "%s", text);
    pthread_mutex_unlock(&c->word->mutex);
}

int comm_speak(struct comm *c)
{
    return !c->word || !atomic_exchange(&c->word->said, 1);
}
