/* Running several processes as one program: one start, one set of settings, one voice on the terminal, one end. */
#include "cli/ranks.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/num.h"
#include "base/process.h"
#include "cli/mpi_defaults.h"
#include "cli/relay.h"
#include "train/live.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_A_CORE = 8, RANKS_ANYWHERE = 64 }; /* most ranks that are started here: of a core, and on any machine */

#define STARTED "LTRAIN_RANKS" /* set for the processes that ranks_start starts: they never start others */

void ranks_hush(const struct launch *l)
{
    if (l->rank > 0 && !freopen("/dev/null", "w", stdout))
        fclose(stdout);
}

/* Tells whether a command line is that of mpiexec, not of a single process. */
static int runs_mpiexec(char **args)
{
    return strcmp(args[0], "mpiexec") == 0;
}

/* Becomes mpiexec or the run, in a process group of its own: a terminal's ^C goes to the parent, which passes it on. */
static void become_started(char **args, const sigset_t *mask, const int ends[2])
{
    dup2(ends[0], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    if (!freopen("/dev/null", "r", stdin))
        fclose(stdin);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(args[0], args);
    if (runs_mpiexec(args))
        fprintf(stderr, "ltrain: --ranks %s: cannot start mpiexec: %s (Debian package openmpi-bin)\n", args[2], strerror(errno));
    else
        fprintf(stderr, "ltrain: --dashboard: cannot start %s: %s\n", args[0], strerror(errno));
    _exit(2);
}

/* The user's wish to stop: the last signal, and the number of requests. */
struct stop {
    int number, times;
    int64_t came_ns;
    int64_t next_ns; /* time at which mpiexec is told again */
    int64_t pause_ns;
};

static const int64_t SECOND = 1000000000;

/* Tells whether a signal asks to stop. The first one does; later ^C and SIGTERM ask again, but not within 0.3 s: timeout(1) sends
 * a process two. */
static int asks(const struct stop *s, int number, int64_t now)
{
    return s->times == 0 || ((number == SIGINT || number == SIGTERM) && now - s->came_ns > SECOND * 3 / 10);
}

/* Tells mpiexec to stop the ranks, with growing pauses. SIGTERM or ^C would make mpiexec end the ranks within seconds; SIGUSR1 is
 * passed on to them, and they take that as a request to stop.
 *
 * While mpiexec starts, signals to it may be lost, so the request is repeated; a rank takes repeated ones as one. An mpiexec that
 * is ended at that time may hang, so at last it is killed, and the ranks leave once it is gone. */
static void tell(pid_t mpiexec, struct stop *s, int64_t now)
{
    int killing = s->times > 2 || (s->times == 2 && s->pause_ns > 0);
    if (s->times == 0 || now < s->next_ns)
        return;
    kill(mpiexec, killing ? SIGKILL : s->times == 2 ? SIGTERM : SIGUSR1);
    s->pause_ns = s->times == 2 ? 10 * SECOND : s->pause_ns == 0 ? SECOND / 10 : min_i64(2 * s->pause_ns, 5 * SECOND);
    s->next_ns = now + s->pause_ns;
}

/* Tells the user that the processes are asked to stop. */
static void say_stopping(FILE *notes, struct dashboard *d)
{
    static const char text[] = "ltrain: the run is told to stop; once more to stop at once\n";
    if (d) {
        dashboard_take(d, STDOUT_FILENO, text, sizeof text - 1);
        return;
    }
    fprintf(notes, "\nltrain: the ranks are told to stop; once more to stop at once\n");
    fflush(notes);
}

/* Waits for mpiexec's end and returns its wait status; meanwhile it takes signals of `wanted`, which are blocked, and draws the
 * dashboard, if there is one. */
static int wait_for(pid_t mpiexec, const sigset_t *wanted, FILE *notes, struct dashboard *d, struct stop *s)
{
    const struct timespec moment = {.tv_nsec = SECOND / 20};
    int state = 0;
    while (waitpid(mpiexec, &state, WNOHANG) == 0) {
        int number = sigtimedwait(wanted, NULL, &moment);
        int64_t now = clock_ns();
        if (number == SIGTSTP) {
            dashboard_pause(d);
        } else if (number > 0 && number != SIGCHLD && asks(s, number, now)) {
            *s = (struct stop){.number = number, .times = s->times + 1, .came_ns = now};
            if (s->times == 1) {
                process_pass_on(number);
                say_stopping(notes, d);
            }
        }
        if (d)
            dashboard_draw(d);
        tell(mpiexec, s, clock_ns());
    }
    return state;
}

/* Tells whether a signal comes from a program's own fault; nobody sends these. */
static int is_crash(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT;
}

/* Prints the signal that ended `which`. The other ranks say which rank has died, if they are connected by then, but not by which
 * signal. */
static void say_signal(const char *which, int number, const char *others)
{
    fprintf(stderr, "ltrain: %s was ended by signal %d (%s)%s%s; what has been saved continues with --resume RUN\n", which,
            number, strsignal(number), number == SIGKILL ? ", by hand or by the kernel for want of memory (dmesg)" : "", others);
}

/* Returns the exit code for the wait status of mpiexec, or of a single process. mpiexec exits with 128 + n if a rank has ended by signal n; a rank's crash
 * counts as a crash, whatever was asked for.
 *
 * If mpiexec itself ends by a signal after a request to stop, the requested signal counts: Open MPI 4.1's mpiexec crashes when a
 * rank goes while it connects. */
static int end_code(int state, int of_mpiexec, const struct stop *s)
{
    int killed = WIFSIGNALED(state), code = killed ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
    if (killed && s->times == 0)
        say_signal(of_mpiexec ? "mpiexec" : "the run", WTERMSIG(state), of_mpiexec ? ", and the ranks with it" : "");
    else if (of_mpiexec && s->times == 0 && (code == 128 + SIGKILL || is_crash(code - 128)))
        say_signal("a rank", code - 128, ", and the others with it");
    if (s->times > 0 && (killed || code == 128 + SIGUSR1 || (s->times > 1 && code != 0 && !is_crash(code - 128))))
        code = 128 + s->number;
    return code;
}

/* Chooses the signals that are passed on. Signals that nohup ignores stay ignored. SIGINT is passed on even if ignored: shells
 * ignore it for background processes, but whoever sends one there means it. */
static void choose_signals(sigset_t *wanted)
{
    static const int others[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
    struct sigaction had;
    sigemptyset(wanted);
    sigaddset(wanted, SIGCHLD);
    sigaddset(wanted, SIGTERM);
    sigaddset(wanted, SIGINT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sigaction(others[i], NULL, &had) == 0 && had.sa_handler != SIG_IGN)
            sigaddset(wanted, others[i]);
}

/* Starts mpiexec with pipes for its output, and waits for it; *code: its exit status. */
static enum status run_piped(char **args, struct relay relay[2], const int ends[2], FILE *notes, struct dashboard *d, int *code)
{
    sigset_t wanted, mask;
    struct stop stop = {0};
    enum status st = OK;
    fflush(stdout);
    choose_signals(&wanted);
    if (d)
        sigaddset(&wanted, SIGTSTP);
    sigprocmask(SIG_BLOCK, &wanted, &mask); /* signals stay blocked until the end, so that none is lost */
    signal(SIGPIPE, SIG_IGN);               /* here and in mpiexec: output that nobody reads ends nothing */
    signal(SIGCHLD, SIG_DFL);               /* a parent may have left it ignored, which would lose mpiexec's status */
    pid_t pid = fork();
    if (pid == 0)
        become_started(args, &mask, ends);
    if (pid < 0) {
        st = status_fail(ERR_NOMEM, "--ranks %s: cannot start mpiexec: %s", args[2], strerror(errno));
    } else if (relay_start(&relay[0]) != 0 || relay_start(&relay[1]) != 0) {
        st = status_fail(ERR_NOMEM, "--ranks %s: cannot start a thread: %s", args[2], strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        relay_end(&relay[0]);
        relay_end(&relay[1]);
    } else {
        int state = wait_for(pid, &wanted, notes, d, &stop);
        relay_end(&relay[0]);
        relay_end(&relay[1]);
        dashboard_close(d);
        d = NULL;
        *code = end_code(state, runs_mpiexec(args), &stop);
    }
    dashboard_close(d);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return st;
}

static enum status run_started(char **args, int with_dashboard, FILE *notes, int *code)
{
    struct relay relay[2] = {
        {.unread = "ltrain: standard output is closed or full: the run goes on, and so does its metrics.jsonl\n"}, {0}};
    int ends[2];
    struct dashboard *d = NULL;
    if (relay_open(&relay[0], STDOUT_FILENO, &ends[0]) != 0 || relay_open(&relay[1], STDERR_FILENO, &ends[1]) != 0)
        return status_fail(ERR_NOMEM, "--ranks %s: cannot make pipes: %s", args[2], strerror(errno));
    enum status st = with_dashboard ? dashboard_open(&d) : OK;
    relay[0].dashboard = relay[1].dashboard = d;
    if (st == OK)
        st = run_piped(args, relay, ends, notes, d, code);
    close(ends[0]);
    close(ends[1]);
    return st;
}

int ranks_are_started(void)
{
    return getenv(STARTED) != NULL;
}

enum status ranks_start(int n, int with_dashboard, char **argv, FILE *notes, int *code)
{
    char count[16], self[4096];
    int argc = 0;
    if (ranks_are_started())
        return status_fail(ERR_INVALID,
                           "mpiexec (--ranks %d) started a process that finds no rank in its environment: is it the mpiexec of "
                           "Open MPI?",
                           n);
    if (n > max_i64(RANKS_ANYWHERE, (int64_t)RANKS_A_CORE * cgroup_cores()))
        return status_fail(
            ERR_INVALID,
            "--ranks: %d processes on the %d core%s of this machine would hardly move: give at most %d, or start ranks on "
            "more machines with mpiexec",
            n, cgroup_cores(), cgroup_cores() == 1 ? "" : "s",
            (int)max_i64(RANKS_ANYWHERE, (int64_t)RANKS_A_CORE * cgroup_cores()));
    while (argv[argc])
        argc++;
    char **args = calloc((size_t)argc + 4, sizeof *args);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!args || length < 0) {
        free(args);
        return status_fail(ERR_NOMEM, "cannot start %d ranks: %s", n, strerror(errno));
    }
    self[length] = 0;
    snprintf(count, sizeof count, "%d", n);
    if (n > 1) {
        memcpy(args, (char *[]){"mpiexec", "-n", count}, 3 * sizeof *args);
        mpi_defaults_set(n, notes);
    }
    const int own = n > 1 ? 3 : 0;
    args[own] = self;
    memcpy(args + own + 1, argv + 1, (size_t)(argc - 1) * sizeof *args);
    setenv(STARTED, count, 1);
    if (with_dashboard)
        setenv(LIVE_VARIABLE, "1", 1);
    process_will_pass_on();
    enum status st = run_started(args, with_dashboard, notes, code);
    free(args);
    return st;
}

static int exit_status(enum status st)
{
    return st == OK ? 0 : st == ERR_INVALID ? 2 : st == ERR_NOFIT ? 3 : 1;
}

int ranks_leave(struct comm *c, enum status st)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", status_message());
    fflush(stdout);
    int several = c && comm_size(c) > 1, together = st == OK || (several && !comm_broken(c) && comm_agreed(c));
    if (several)
        signal(SIGTERM, SIG_IGN); /* sent by mpiexec when a rank has died: leaves time to say so */
    /* the barrier fails with the name of a rank that dies only now */
    if (several && together && comm_barrier(c) != OK && st == OK) {
        snprintf(sentence, sizeof sentence, "%s", status_message());
        st = ERR_PEER;
        together = 0;
    }
    if (several && !together) {
        if (comm_speak(c))
            fprintf(stderr, "ltrain: rank %d: %s\n", comm_rank(c), sentence);
        comm_fail(c, st, sentence);
        comm_destroy(c);
        _exit(exit_status(st)); /* MPI's own exit would wait for the other ranks */
    }
    if (st != OK && (!several || comm_rank(c) == 0))
        fprintf(stderr, "ltrain: %s\n", sentence);
    const int broken = several && comm_broken(c);
    comm_destroy(c);
    if (broken)
        _exit(exit_status(st));
    return exit_status(st);
}
