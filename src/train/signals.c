/* Handlers of signals: they remember the number and write a line. */
#include "train/signals.h"

#include "base/clock.h"
#include "base/process.h"
#include "base/sys.h"
#include "train/walltime.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Signals by which people, terminals, schedulers, launchers and limits announce the end. */
static const struct ending {
    int number, asks; /* asks: 1: sent on purpose, so that a second one ends at once */
    const char *name;
} endings[] = {{SIGINT, 1, "SIGINT"},
               {SIGTERM, 1, "SIGTERM"},
               {SIGHUP, 0, "SIGHUP"},
               {SIGUSR1, 0, "SIGUSR1"},
               {SIGUSR2, 0, "SIGUSR2"},
               {SIGXCPU, 0, "SIGXCPU (the limit of CPU time)"},
               {WALLTIME_SIGNAL, 0, "the walltime's end"}};
enum { ENDINGS = sizeof endings / sizeof *endings };

/* Time within which two equal signals count as one: timeout(1) and some shells send one to the process and one to its group. */
static const int64_t ONCE_NS = 300000000;
static const int64_t MS = 1000000;

static atomic_int first;
static _Atomic int64_t first_ns;
static _Atomic int64_t asked_ns;
static atomic_int done;
static const char *early_remark; /* remark on a signal before there is anything to keep; NULL: none */
static const char *stop_remark;  /* remark on a later signal */
static int stop_fd;              /* file of that remark; below 0: none */
static atomic_int failing;       /* 1: the run has failed and is about to say so */
static atomic_int left;          /* 1: early_remark is said */
static atomic_int together;      /* 1: signals are requests on all ranks */
static atomic_int answered;      /* 1: stop_remark is said */

static const struct ending *find(int number)
{
    int i = 0;
    while (i < ENDINGS - 1 && endings[i].number != number)
        i++;
    return &endings[i];
}

/* Returns the name of the signal that was sent to the program: its ranks get SIGUSR1 for any signal. Safe in a handler. */
static const char *name_sent(int number)
{
    int sent = number == SIGUSR1 ? process_passed_on() : 0;
    return find(sent ? sent : number)->name;
}

/* Prints by write() alone, as a handler must. */
static void say(int fd, const char *a, const char *name, const char *b, const char *c)
{
    const char *part[] = {a, name, b, c};
    char text[256];
    size_t n = 0;
    for (int i = 0; i < 4; i++) {
        size_t bytes = strlen(part[i]);
        if (n + bytes > sizeof text)
            break;
        memcpy(text + n, part[i], bytes);
        n += bytes;
    }
    if (write(fd, text, n) < 0) {
        /* nobody reads */
    }
}

/* Ends the process, also from a thread that blocks signals. */
static void end_at_once(int number)
{
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &it, NULL);
    raise(number);
}

static void end_early(int number)
{
    if (early_remark && !atomic_exchange(&left, 1))
        say(STDERR_FILENO, "ltrain: ", name_sent(number), early_remark, "\n");
    end_at_once(number);
}

static void on_early(int number)
{
    if (!atomic_exchange(&failing, 0))
        end_early(number);
}

/* Ends the process if it has been told to end, or is told within that time. Where an ancestor passes signals on, as SIGUSR1, it is
 * asked, and nothing is waited for. */
static void leave_if_told(int wait_ms)
{
    const int64_t until = clock_ns() + wait_ms * MS;
    for (;;) {
        const int number = process_passed_on() ? SIGUSR1 : atomic_load(&first);
        if (number)
            end_early(number);
        if (process_is_passed_on_to() || clock_ns() >= until)
            return;
        clock_sleep_ns(10 * MS);
    }
}

/* Tells whether an earlier signal has asked for the end. */
static int is_second(void)
{
    int64_t now = clock_ns(), before = 0;
    return !atomic_compare_exchange_strong(&asked_ns, &before, now) && now - before > ONCE_NS;
}

/* Says what follows from the first signal, once. */
static void answer(int number)
{
    if (stop_fd < 0 || !atomic_load(&together) || atomic_exchange(&answered, 1))
        return;
    say(stop_fd, "\nltrain: ", name_sent(number), atomic_load(&done) ? ": training is done: finishing the export" : stop_remark,
        find(number)->asks ? "; once more to stop at once\n" : "\n");
}

static void on_signal(int number)
{
    const struct ending *e = find(number);
    int none = 0;
    int64_t never = 0;
    if (e->asks && is_second()) {
        end_at_once(number);
        return;
    }
    atomic_compare_exchange_strong(&first_ns, &never, clock_ns()); /* stored before anybody sees that the signal has come */
    if (atomic_compare_exchange_strong(&first, &none, number) && !atomic_load(&failing))
        answer(number);
}

/* Catches all signals except those that nohup and the like ignore. SIGINT is caught even if ignored: shells ignore it for
 * background processes, but whoever sends one there means it. */
static void catch_all(void (*handler)(int))
{
    for (int i = 0; i < ENDINGS; i++) {
        struct sigaction had, want = {.sa_handler = handler, .sa_flags = SA_RESTART};
        if (sigaction(endings[i].number, NULL, &had) == 0 && had.sa_handler == SIG_IGN && !endings[i].asks)
            continue;
        sigemptyset(&want.sa_mask);
        sigaction(endings[i].number, &want, NULL);
    }
}

static void begin(const char *remark)
{
    early_remark = remark;
    atomic_store(&failing, 0);
    catch_all(on_early);
}

void signals_join(struct comm *c)
{
    process_find_passed_on();
    comm_before_report(c, leave_if_told);
}

void signals_before_first_step(int speaks)
{
    signal(SIGPIPE, SIG_IGN);
    begin(speaks ? " before the first step: there is nothing to save yet" : NULL);
}

void signals_before_first_result(int speaks)
{
    begin(speaks ? " before the first answer or window: there is nothing to show" : NULL);
}

void signals_run_failed(void)
{
    atomic_store(&failing, 1);
}

/* Makes signals requests on all ranks together. Until all ranks remember signals, one that does not may be ended by its first: then
 * the others end like that one. */
static enum status remember(struct comm *c, int fd, const char *remark)
{
    atomic_store(&first, 0);
    atomic_store(&first_ns, 0);
    atomic_store(&asked_ns, 0);
    atomic_store(&done, 0);
    atomic_store(&together, 0);
    atomic_store(&answered, 0);
    stop_fd = fd;
    stop_remark = remark;
    catch_all(on_signal);
    TRY(comm_barrier(c));
    comm_before_report(c, NULL);
    atomic_store(&together, 1);
    const int number = atomic_load(&first);
    if (number)
        answer(number);
    return OK;
}

enum status signals_stop_run(struct comm *c, enum stop_when when)
{
    return remember(c, STDOUT_FILENO,
                    when == STOP_STEP ? ": stopping after this step and saving" : ": stopping now and saving the last update");
}

enum status signals_stop_evaluation(struct comm *c, int speaks)
{
    return remember(c, speaks ? STDERR_FILENO : -1, ": ending with what is found");
}

void signals_training_done(void)
{
    atomic_store(&done, 1);
}

const atomic_int *signals_first(void)
{
    return &first;
}

enum status signals_agree(struct comm *c, int *number)
{
    int own = atomic_load(&first), *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    enum status st = comm_gather(c, &own, sizeof own, all);
    for (int k = 0; k < comm_size(c) && st == OK && *number == 0; k++)
        *number = all[k];
    free(all);
    return st;
}

double signals_seconds_ago(void)
{
    return atomic_load(&first) ? (double)(clock_ns() - atomic_load(&first_ns)) * 1e-9 : 0;
}

const char *signals_name(int number)
{
    return name_sent(number);
}
