/* `ltrain doctor`: reading its arguments. */
#include "cli/doctor.h"

#include "base/clock.h"
#include "base/sys.h"
#include "cli/build.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "comm/comm.h"
#include "doctor/doctor.h"
#include "settings/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: ltrain doctor [--nvme-path DIR,DIR] [--measure] [--json] [--strict]\n"
                            "       ltrain doctor --model NAME --seq-len N [options of ltrain plan]\n\n"
                            "Looks at this machine before a run does: cores, memory, limits, io_uring, the\n"
                            "directories that state would be offloaded to, GPUs, MPI. Each line is ok, a\n"
                            "warning, a failure, or says what was not measured, with a remedy. With a model,\n"
                            "the plan of its steps is compared with memory, limits, room and drives.\n"
                            "Exit status: 0, or 1 if something fails.\n"
                            "  --nvme-path DIR,...  directories for offloading (default: the present one)\n"
                            "  --measure            write and read 1 GiB in each of them\n"
                            "  --json               the same as an object\n"
                            "  --strict             warnings fail, too\n"
                            "  --bundle FILE        a tar for who is asked for help: this report, versions, plan\n"
                            "                       and settings, without data and names of users\n"
                            "  --model NAME         with other options of ltrain plan: a plan for this machine\n";
static const char options[] =
    "--nvme-path DIR, --measure, --json, --strict, --bundle FILE and, beside --model, those of ltrain plan";

enum { PATHS = 16 };

/* Cuts a list at its commas, in place; returns the number of parts. */
static int cut(char *list, const char *part[PATHS])
{
    int n = 0;
    for (char *at = list, *word; n < PATHS && (word = strsep(&at, ","));)
        if (word[0])
            part[n++] = word;
    return n;
}

/* Options as given: the doctor's own, and those of a plan. */
struct given {
    const char *paths, *bundle;
    int measure, json, strict, n;
    char **plan;         /* [n], borrowed arguments in memory of its own */
    char text[4096 + 1]; /* the paths, cut */
    const char *path[PATHS];
    struct settings settings; /* a plan's, if there is one */
};

/* Tells whether an argument is the option `name`, with a value in it or behind it. */
static int is_option(const char *arg, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && (arg[n] == 0 || arg[n] == '=');
}

/* Sorts arguments into the doctor's own and a plan's; those of both, as --nvme-path, belong to both. */
static enum status sort_out(int argc, char **argv, struct given *out)
{
    static const char *const with_value[] = {"--nvme-path", "--bundle"}, *const alone[] = {"--measure", "--json", "--strict"};
    const struct cli_option all[] = {{"--nvme-path", &out->paths, NULL},
                                     {"--bundle", &out->bundle, NULL},
                                     {"--measure", NULL, &out->measure},
                                     {"--json", NULL, &out->json},
                                     {"--strict", NULL, &out->strict}};
    int planned = 0;
    for (int i = 0; i < argc; i++)
        planned |= is_option(argv[i], "--model") || is_option(argv[i], "--config");
    if (!planned)
        return cli_options_read("doctor", argc, argv, all, sizeof all / sizeof *all, options);
    for (int i = 0, takes; i < argc; i += takes) {
        int own = 0;
        takes = 1;
        for (int k = 0; k < 2; k++)
            if (is_option(argv[i], with_value[k])) {
                own = 1;
                takes = !strchr(argv[i], '=') && i + 1 < argc ? 2 : 1;
            }
        for (int k = 0; k < 3; k++)
            own |= is_option(argv[i], alone[k]);
        if (own)
            TRY(cli_options_read("doctor", takes, argv + i, all, sizeof all / sizeof *all, options));
        for (int k = 0; k < takes && (!own || is_option(argv[i], "--nvme-path")); k++)
            out->plan[out->n++] = argv[i + k];
    }
    return OK;
}

/* Reads the settings of the plan. */
static enum status read_plan(struct given *g, struct doctor *out)
{
    struct settings_flags *flags;
    TRY(settings_flags_parse(g->n, g->plan, &flags));
    enum status st = settings_read(flags, SETTINGS_PLAN, &g->settings);
    settings_flags_free(flags);
    TRY(st);
    g->settings.json = g->json;
    out->plan = &g->settings;
    return OK;
}

/* Reads the arguments; the doctor borrows from *g. */
static enum status read_arguments(int argc, char **argv, struct given *g, struct doctor *out)
{
    g->paths = ".";
    TRY(sort_out(argc, argv, g));
    if (strlen(g->paths) >= sizeof g->text)
        return status_fail(ERR_INVALID, "doctor: --nvme-path has %zu bytes, at most %zu are possible", strlen(g->paths),
                           sizeof g->text - 1);
    snprintf(g->text, sizeof g->text, "%s", g->paths);
    out->n_paths = cut(g->text, g->path);
    out->path = g->path;
    out->measure = g->measure;
    out->json = g->json;
    out->strict = g->strict;
    out->bundle = g->bundle;
    if (out->n_paths == 0)
        return status_fail(ERR_INVALID, "doctor: --nvme-path names no directory");
    return g->n > 0 ? read_plan(g, out) : OK;
}

/* Joins the other ranks, if mpiexec started some; fault: a sentence about ranks that cannot join, or about one that runs another
 * program, or "". *rank: this process's own. */
static enum status join(struct comm **out, int *rank, char *fault, size_t size)
{
    enum { PATIENCE = 600 }; /* seconds to wait for another rank, which may measure its drives */
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK || launch.size == 1)
        return OK; /* the check of launchers says what is wrong */
    *rank = launch.rank;
    ranks_hush(&launch);
    enum status st = comm_create(&launch, PATIENCE, out);
    if (st == OK)
        st = build_compare(*out);
    if (st != ERR_INVALID)
        return st;
    snprintf(fault, size, "%s", status_message());
    return OK;
}

/* Ends a rank that cannot join, once rank 0 has had time to look alone: a failure makes mpiexec end all ranks, which would else wait
 * for this one. Returns the exit status. */
static int leave_late(int rank, const char *fault)
{
    enum { LATER = 10 }; /* seconds */
    clock_sleep_ns(LATER * 1000000000LL);
    fprintf(stderr, "ltrain: rank %d: %s\n", rank, fault);
    return 1;
}

/* Looks, alone or with the other ranks. Returns the exit status. */
static int run(int argc, char **argv, struct given *g)
{
    char fault[600] = "";
    int code = 0, rank = 0;
    struct doctor d = {.version = build_text, .fault = fault};
    enum status st = join(&d.comm, &rank, fault, sizeof fault);
    if (st == OK && rank > 0 && !d.comm)
        return leave_late(rank, fault);
    if (st == OK)
        st = read_arguments(argc, argv, g, &d);
    if (d.comm && !comm_broken(d.comm))
        st = comm_agree(d.comm, st);
    if (st == OK)
        st = doctor_run(&d, &code);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    if (d.plan)
        settings_free(&g->settings);
    const int failed = ranks_leave(d.comm, st);
    return failed ? failed : code;
}

int doctor_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    struct given *g = sys_calloc(1, sizeof *g);
    char **plan = sys_calloc((size_t)argc + 1, sizeof *plan);
    int code;
    if (g && plan) {
        g->plan = plan;
        code = run(argc, argv, g);
    } else
        code = cli_options_leave(status_fail(ERR_NOMEM, "doctor: out of memory"));
    free(plan);
    free(g);
    return code;
}
