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

static atomic_int first;
static _Atomic int64_t first_ns;
static _Atomic int64_t asked_ns;
static atomic_int done;
static const char *early_remark; /* remark on a signal before there is anything to keep; NULL: none */
static const char *stop_remark;  /* remark on a later signal */
static int stop_fd;              /* file of that remark; below 0: none */
static atomic_int failing;       /* 1: the run has failed and is about to say so */

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

static void end_at_once(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

static void on_early(int number)
{
    if (atomic_exchange(&failing, 0))
        return;
    if (early_remark)
        say(STDERR_FILENO, "ltrain: ", name_sent(number), early_remark, "\n");
    end_at_once(number);
}

/* Tells whether an earlier signal has asked for the end. */
static int is_second(void)
{
    int64_t now = clock_ns(), before = 0;
    return !atomic_compare_exchange_strong(&asked_ns, &before, now) && now - before > ONCE_NS;
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
    if (!atomic_compare_exchange_strong(&first, &none, number) || atomic_load(&failing) || stop_fd < 0)
        return;
    say(stop_fd, "\nltrain: ", name_sent(number), atomic_load(&done) ? ": training is done: finishing the export" : stop_remark,
        e->asks ? "; once more to stop at once\n" : "\n");
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
    process_find_passed_on();
    catch_all(on_early);
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

static void remember(int fd, const char *remark)
{
    atomic_store(&first, 0);
    atomic_store(&first_ns, 0);
    atomic_store(&asked_ns, 0);
    atomic_store(&done, 0);
    stop_fd = fd;
    stop_remark = remark;
    catch_all(on_signal);
}

void signals_stop_run(enum stop_when when)
{
    remember(STDOUT_FILENO,
             when == STOP_STEP ? ": stopping after this step and saving" : ": stopping now and saving the last update");
}

void signals_stop_evaluation(int speaks)
{
    remember(speaks ? STDERR_FILENO : -1, ": ending with what is found");
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
