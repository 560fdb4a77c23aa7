/* `ltrain doctor`: reading its arguments. */
#include "cli/doctor.h"

#include "base/sys.h"
#include "cli/build.h"
#include "cli/options.h"
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
    char **plan; /* [n], borrowed arguments in memory of its own */
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

/* Looks with a plan's settings. */
static enum status run_planned(struct doctor *d, const struct given *g, int *code)
{
    struct settings_flags *flags;
    struct settings s;
    TRY(settings_flags_parse(g->n, g->plan, &flags));
    enum status st = settings_read(flags, SETTINGS_PLAN, &s);
    settings_flags_free(flags);
    TRY(st);
    s.json = d->json;
    d->plan = &s;
    st = doctor_run(d, code);
    settings_free(&s);
    return st;
}

static enum status run(int argc, char **argv, struct given *g, int *code)
{
    struct doctor d = {.version = build_text};
    const char *path[PATHS];
    char text[4096 + 1];
    TRY(sort_out(argc, argv, g));
    if (strlen(g->paths) >= sizeof text)
        return status_fail(ERR_INVALID, "doctor: --nvme-path has %zu bytes, at most %zu are possible", strlen(g->paths),
                           sizeof text - 1);
    snprintf(text, sizeof text, "%s", g->paths);
    d.n_paths = cut(text, path);
    d.path = path;
    d.measure = g->measure;
    d.json = g->json;
    d.strict = g->strict;
    d.bundle = g->bundle;
    if (d.n_paths == 0)
        return status_fail(ERR_INVALID, "doctor: --nvme-path names no directory");
    return g->n > 0 ? run_planned(&d, g, code) : doctor_run(&d, code);
}

int doctor_command(int argc, char **argv)
{
    int code = 0;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    struct given g = {.paths = ".", .plan = sys_calloc((size_t)argc + 1, sizeof *g.plan)};
    enum status st = g.plan ? run(argc, argv, &g, &code) : status_fail(ERR_NOMEM, "doctor: out of memory");
    free(g.plan);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    return st == OK ? code : cli_options_leave(st);
}
