/* The module that speaks MPI: compiled once against the headers of each. */
#include "comm/wire_module.h"

#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct table {
    MPI_Request *request;
    int *index;
    MPI_Status *status;
    struct wire_event *event;
    int slots;
};

/* The wire's communicators: one for all data, with the channel as tag. So no group has to be made by a collective call, which
 * would block once a rank has died. Control messages are received from any rank and have a communicator of their own. */
struct wire {
    MPI_Comm data, control;
    struct table table[CHANNELS];
};

enum {
    START_SECONDS = 60, /* least time limit: programs start slowly from a network's disk */
    END_SECONDS = 30,
    TICKS =
        20, /* ticks into which the time limit is divided; if the process was stopped meanwhile, the pause counts as one tick */
    TICK_SECONDS = 4 /* at most */
};
static const struct wire_host *host; /* the program that opened the module */
static char start_message[160];
static volatile sig_atomic_t ticks_left, ticks_asked; /* ticks_asked: during which a signal to stop has waited */
static unsigned tick_seconds;
static char starting[1024]; /* "": MPI is not being started */
static atomic_uint calls;   /* calls of MPI entered, plus calls left: odd inside a call */

/* Returns the signals that ask a run to stop. */
static sigset_t stop_signals(void)
{
    static const int stops[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGXCPU};
    sigset_t stop;
    sigemptyset(&stop);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        sigaddset(&stop, stops[i]);
    return stop;
}

/* Lets a signal to stop take effect that has waited for some seconds: another rank may never come up. */
static void heed_stop(void)
{
    const sigset_t stop = stop_signals();
    sigset_t waiting;
    int asked = 0;
    sigpending(&waiting);
    for (int number = 1; number < NSIG; number++)
        asked |= sigismember(&stop, number) == 1 && sigismember(&waiting, number) == 1;
    ticks_asked = asked ? ticks_asked + 1 : 0;
    if (ticks_asked > 1)
        sigprocmask(SIG_UNBLOCK, &stop, NULL);
}

/* Counts a tick, and ends the process after the last. _Exit, because lastword.c's _exit has nothing to add before the ranks have
 * met and after they have parted. */
static void take_tick(int number)
{
    (void)number;
    if (--ticks_left > 0) {
        heed_stop();
        alarm(tick_seconds);
        return;
    }
    if (write(STDERR_FILENO, start_message, strlen(start_message)) < 0)
        _Exit(1);
    _Exit(1);
}

/* Limits the time inside MPI: the process then ends with start_message. Returns the previous handler. */
static void (*limit_time(double seconds))(int)
{
    tick_seconds = (unsigned)(seconds / TICKS < TICK_SECONDS ? seconds / TICKS + 1 : TICK_SECONDS);
    ticks_left = (sig_atomic_t)(seconds / tick_seconds) + 1;
    void (*before)(int) = signal(SIGALRM, take_tick);
    alarm(tick_seconds);
    return before;
}

static enum status mpi_fail(const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, text, &length);
    return host->fail(ERR_IO, "MPI cannot %s: %s", what, text);
}

/* Tells whether ltrain itself has set the variable, which the user then cannot unset. */
static int is_ours(const char *assignment)
{
    char name[96];
    const char *ours = getenv(LAUNCH_DEFAULTS);
    snprintf(name, sizeof name, ":%.*s:", (int)strcspn(assignment, "="), assignment);
    return ours && strstr(ours, name);
}

/* Lists the environment's choices of MPI transports, as "A=x, B=y"; "" if none. */
static void describe_transports(char *text, size_t bytes)
{
    static const char *const prefix[] = {"OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_oob"};
    size_t n = 0;
    text[0] = 0;
    for (char **e = environ; *e && n < bytes; e++)
        for (size_t k = 0; k < sizeof prefix / sizeof *prefix && n < bytes; k++)
            if (strncmp(*e, prefix[k], strlen(prefix[k])) == 0 && !is_ours(*e))
                n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? ", " : "", *e);
}

/* Prepares the sentence for a failed start. Open MPI ends the process itself if its ranks cannot reach each other, and mpiexec is
 * told not to repeat its messages (cli/ranks.c). */
static void prepare_last_word(const struct launch *l)
{
    char transports[512], memory[192];
    describe_transports(transports, sizeof transports);
    const char *btl = getenv("OMPI_MCA_btl"); /* by default Open MPI goes over TCP by itself */
    const int by_memory = btl && (strstr(btl, "vader") || strstr(btl, "sm"));
    if (by_memory && host->shm_is_short(l->local_size > 0 ? l->local_size : 1, memory, sizeof memory)) {
        snprintf(
            starting, sizeof starting,
            "ltrain: rank %d: MPI cannot start and has ended this process: %s: make it larger (docker run --shm-size), remove "
            "what other programs have left there, or set OMPI_MCA_btl=tcp,self\n",
            l->rank, memory);
        return;
    }
    snprintf(starting, sizeof starting,
             "ltrain: rank %d: MPI cannot start and has ended this process: the ranks cannot reach each other%s%s%s\n", l->rank,
             transports[0] ? " by what the environment asks for (" : "", transports,
             transports[0] ? "); unset what an old job script or a module has left there" : ", or the installation is not whole");
}

static const char *get_starting(void)
{
    return starting;
}

/* Starts MPI with stop signals blocked, so that they take effect afterwards, or after some seconds (heed_stop): if a rank leaves
 * while it connects, Open MPI's mpiexec complains, crashes or hangs. */
static int init_unstopped(int *provided)
{
    const sigset_t stop = stop_signals();
    sigset_t mask;
    sigprocmask(SIG_BLOCK, &stop, &mask);
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return error;
}

/* Starts MPI within a deadline; MPI_Init itself has none and waits for all ranks. */
static enum status start_mpi(const struct launch *l, double timeout, struct wire *w)
{
    int provided, rank, size, error;
    timeout = timeout < START_SECONDS ? START_SECONDS : timeout;
    snprintf(start_message, sizeof start_message,
             "ltrain: rank %d: MPI has not started within %.0f s: not all of the %d ranks came up\n", l->rank, timeout, l->size);
    /* without yielding, two ranks on one core pass the CPU once in a time slice */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    signal(SIGPIPE, SIG_IGN); /* over TCP a message to a dead rank must not end this one */
    void (*before)(int) = limit_time(timeout);
    prepare_last_word(l);
    error = init_unstopped(&provided);
    starting[0] = 0;
    if (error != MPI_SUCCESS)
        return mpi_fail("start", error);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != l->rank || size != l->size)
        return host->fail(
            ERR_INVALID,
            "%s says that this is rank %d of %d, but MPI says rank %d of %d; start with the mpiexec of the MPI that "
            "is loaded, or srun --mpi=pmix",
            l->source, l->rank, l->size, rank, size);
    if (provided < MPI_THREAD_SERIALIZED)
        return host->fail(ERR_INVALID, "this MPI does not allow calls from more than one thread (MPI_THREAD_SERIALIZED)");
    error = MPI_Comm_dup(MPI_COMM_WORLD, &w->data);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_dup(MPI_COMM_WORLD, &w->control);
    if (error != MPI_SUCCESS)
        return mpi_fail("make communicators", error);
    alarm(0);
    signal(SIGALRM, before == SIG_ERR ? SIG_DFL : before);
    return OK;
}

static enum status create_wire(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    struct wire *w = host->allocate(sizeof *w);
    if (!w)
        return host->fail(ERR_NOMEM, "out of memory for the communicator");
    memset(w, 0, sizeof *w);
    enum status st = start_mpi(launch, timeout_seconds, w);
    if (st != OK) {
        alarm(0);
        free(w);
        return st;
    }
    *out = w;
    return OK;
}

static unsigned count_calls(void)
{
    return atomic_load(&calls);
}

static void free_table(struct table *t)
{
    free(t->request);
    free(t->index);
    free(t->status);
    free(t->event);
    memset(t, 0, sizeof *t);
}

static void destroy_wire(struct wire *w, double finalize_seconds)
{
    if (!w)
        return;
    if (finalize_seconds > 0) {
        for (int slot = 0; slot < w->table[CHANNEL_CONTROL].slots; slot++) { /* cancels the receive of a notice that never came */
            MPI_Request *r = &w->table[CHANNEL_CONTROL].request[slot];
            if (*r == MPI_REQUEST_NULL)
                continue;
            MPI_Cancel(r);
            MPI_Wait(r, MPI_STATUS_IGNORE);
        }
        snprintf(start_message, sizeof start_message, "ltrain: MPI does not end; leaving\n");
        limit_time(finalize_seconds < END_SECONDS ? END_SECONDS : finalize_seconds);
        MPI_Comm_free(&w->data);
        MPI_Comm_free(&w->control);
        MPI_Finalize();
        alarm(0);
        for (int i = 0; i < CHANNELS; i++)
            free_table(&w->table[i]);
        free(w);
    }
    /* the tables stay if MPI was left as it is, since MPI may still write where requests point */
}

static enum status reserve_slots(struct wire *w, enum channel channel, int slots)
{
    struct table t = {.slots = slots};
    t.request = host->allocate((size_t)slots * sizeof *t.request);
    t.index = host->allocate((size_t)slots * sizeof *t.index);
    t.status = host->allocate((size_t)slots * sizeof *t.status);
    t.event = host->allocate((size_t)slots * sizeof *t.event);
    if (!t.request || !t.index || !t.status || !t.event) {
        free_table(&t);
        return host->fail(ERR_NOMEM, "out of memory for %d messages in flight", slots);
    }
    for (int i = 0; i < slots; i++)
        t.request[i] = MPI_REQUEST_NULL;
    free_table(&w->table[channel]);
    w->table[channel] = t;
    return OK;
}

static MPI_Comm communicator(const struct wire *w, enum channel channel)
{
    return channel == CHANNEL_CONTROL ? w->control : w->data;
}

static enum status send_bytes(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    atomic_fetch_add(&calls, 1);
    int error = MPI_Isend(data, bytes, MPI_BYTE, to, channel, communicator(w, channel), &w->table[channel].request[slot]);
    atomic_fetch_add(&calls, 1);
    return error == MPI_SUCCESS ? OK : mpi_fail("send", error);
}

static enum status receive_bytes(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    atomic_fetch_add(&calls, 1);
    int error = MPI_Irecv(data, bytes, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, channel, communicator(w, channel),
                          &w->table[channel].request[slot]);
    atomic_fetch_add(&calls, 1);
    return error == MPI_SUCCESS ? OK : mpi_fail("receive", error);
}

static int is_in_use(const struct wire *w, enum channel channel, int slot)
{
    return w->table[channel].request[slot] != MPI_REQUEST_NULL;
}

static enum status test_slots(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    struct table *t = &w->table[channel];
    int count = 0;
    atomic_fetch_add(&calls, 1);
    int error = MPI_Testsome(t->slots, t->request, &count, t->index, t->status);
    atomic_fetch_add(&calls, 1);
    if (count == MPI_UNDEFINED)
        count = 0;
    *events = t->event;
    *n = count;
    for (int i = 0; i < count; i++) {
        int failed = error == MPI_ERR_IN_STATUS ? t->status[i].MPI_ERROR : MPI_SUCCESS;
        t->event[i].slot = t->index[i];
        MPI_Get_count(&t->status[i], MPI_BYTE, &t->event[i].bytes); /* for a send: unused */
        if (failed == MPI_ERR_TRUNCATE)
            t->event[i].bytes = WIRE_TOO_LONG;
        else if (failed != MPI_SUCCESS)
            return mpi_fail("complete a message", failed);
    }
    return error == MPI_SUCCESS || error == MPI_ERR_IN_STATUS ? OK : mpi_fail("test for messages", error);
}

const struct wire_module *ltrain_wire_module(const struct wire_host *program);

const struct wire_module *ltrain_wire_module(const struct wire_host *program)
{
    static const struct wire_module module = {.version = WIRE_MODULE_VERSION,
                                              .create = create_wire,
                                              .destroy = destroy_wire,
                                              .reserve = reserve_slots,
                                              .send = send_bytes,
                                              .recv = receive_bytes,
                                              .in_use = is_in_use,
                                              .test = test_slots,
                                              .starting = get_starting,
                                              .calls = count_calls};
    host = program;
    return &module;
}
