/* ltrain: from a command line to a command, and its exit status. */
#include "base/watch.h"
#include "cli/build.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "cli/replay.h"
#include "comm/launch.h"
#include "train/signals.h"

#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Tells whether one of the arguments is that option, whatever the others are. */
static int asks_for(int argc, char **argv, const char *option, const char *letter)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], option) == 0 || strcmp(argv[i], letter) == 0)
            return 1;
    return 0;
}

#define DRIVE_PATIENCE 30 /* seconds until a message says that a drive does not answer */

static struct comm *watching;

static void say_of_drive(const char *sentence)
{
    char rank[128] = "";
    if (comm_hosts(watching) > 1)
        snprintf(rank, sizeof rank, "rank %d on %s: ", comm_rank(watching), comm_host(watching, comm_rank(watching)));
    else if (comm_size(watching) > 1)
        snprintf(rank, sizeof rank, "rank %d: ", comm_rank(watching));
    fprintf(stderr, "ltrain: %s%s\n", rank, sentence);
}

/* Ends the process while a drive does not answer: threads inside the kernel cannot be waited for. The next run recognises the
 * nvme tier's files as a dead run's. */
static void give_up_drive(const char *sentence)
{
    if (comm_speak(watching))
        say_of_drive(sentence);
    _exit(1);
}

/* Begins to watch drives, before the settings are read, which may lie on such a drive. */
static enum status watch_drives(struct comm *c, const struct settings_flags *f)
{
    watching = c;
    return comm_agree(c, watch_start(&(struct watch_rules){.patience = DRIVE_PATIENCE,
                                                           .timeout = settings_patience(f, "drive-timeout"),
                                                           .device_timeout = settings_patience(f, "device-timeout"),
                                                           .say = say_of_drive,
                                                           .end = give_up_drive}));
}

/* Restarts the program so that libgomp's idle threads spin 1,000 times before they sleep; libgomp reads the environment before
 * main().
 *
 * By default they spin 300,000 times. Beside another busy program, the thread that they wait for does not run meanwhile: steps took 11
 * times as long instead of twice. With more threads than cores, as with those of a host lane, libgomp spins only 100 times. Waking up
 * between two ops then takes 0.1 ms: steps with updates on the host took up to 25% longer. OMP_WAIT_POLICY=active applies our number
 * there, too. */
#define SPINS "1000"

static void spin_briefly(char **argv)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || setenv("GOMP_SPINCOUNT", SPINS, 1) != 0 ||
        setenv("OMP_WAIT_POLICY", "active", 1) != 0)
        return;
    self[n] = 0;
    execv(self, argv);
}

/* Makes threads share one arena if addresses are limited (RLIMIT_AS): glibc reserves 64 MiB of addresses for each thread that
 * allocates. */
static void save_addresses(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

/* Runs the command of this rank. *code: the exit status, if all goes well. */
static enum status run(struct comm *c, const char *name, const struct command_line *line, int *code)
{
    const struct command *x = command_find(name);
    TRY(build_compare(c));
    TRY(watch_drives(c, line->flags));
    return x ? command_run(x, c, line, code) : comm_agree(c, command_refuse(name));
}

/* Joins the other ranks and runs the command. Returns the exit status. */
static int run_ranks(const struct launch *launch, const char *name, const struct command_line *line)
{
    struct comm *comm = NULL;
    int code = 0;
    enum status st = comm_create(launch, settings_patience(line->flags, "comm-timeout"), &comm);
    if (st == OK)
        signals_join(comm);
    if (st != OK && launch->size > 1) { /* each rank prints its own failure, since it may know of no other rank */
        fprintf(stderr, "ltrain: rank %d: %s\n", launch->rank, status_message());
        return st == ERR_INVALID ? 2 : 1;
    }
    if (st == OK)
        st = run(comm, name, line, &code);
    watch_stop();
    int failed = ranks_leave(comm, st);
    return failed ? failed : code;
}

/* Prints the command's help or the version instead of running the command. Returns 0 if neither was asked for. */
static int inform(int argc, char **argv, const char *name)
{
    const struct command *x = command_find(name);
    const int help = asks_for(argc, argv, "--help", "-h");
    const int version = asks_for(argc, argv, "--version", "-V") || strcmp(name, "version") == 0;
    if (help)
        command_help(x ? x : command_find("train"));
    else if (version)
        fputs(build_text, stdout);
    return help || version;
}

/* Parses the options behind the command's name. */
static enum status parse(int n, char **argv, const char *name, char **replaced, struct settings_flags **out)
{
    if (strcmp(name, "replay") != 0)
        return settings_flags_parse(n, argv, out);
    return settings_flags_parse(replay_arguments(n, argv, replaced), replaced, out);
}

int main(int argc, char **argv)
{
    spin_briefly(argv);
    save_addresses();
    signal(SIGXFSZ, SIG_IGN); /* writes beyond the limit of a file's size fail with EFBIG, which is reported */
    const int first = argc > 1 && argv[1][0] != '-' ? 2 : 1, n = argc > first ? argc - first : 0;
    const char *name = first == 2 ? argv[1] : "train";
    const struct command *x = command_find(name);
    struct launch_flags own;
    struct launch launch;
    struct settings_flags *flags = NULL;
    int code = 0;
    if (x && command_runs_alone(x, n, argv + first, &code))
        return code;
    char **replaced = calloc((size_t)argc + 1, sizeof *replaced);
    enum status st =
        replaced ? parse(n, argv + first, name, replaced, &flags) : status_no_memory("while reading the command line");
    if (st != OK) {
        code = ranks_leave(NULL, st);
        free(replaced);
        return code;
    }
    st = settings_launch(flags, &own.rank, &own.size, &own.local_rank);
    if (st == OK)
        st = launch_detect(&own, &launch);
    if (st != OK) {
        code = ranks_leave(NULL, st);
    } else {
        ranks_hush(&launch);
        if (!inform(argc, argv, name))
            code = run_ranks(&launch, name, &(struct command_line){.argc = argc, .argv = argv, .flags = flags});
    }
    settings_flags_free(flags);
    free(replaced);
    return code;
}
