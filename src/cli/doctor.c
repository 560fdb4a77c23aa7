/* `ltrain doctor`: reading its arguments. */
#include "cli/doctor.h"

#include "base/num.h"
#include "cli/options.h"
#include "doctor/doctor.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: ltrain doctor [--nvme-path DIR,DIR] [--measure] [--json] [--strict]\n\n"
                            "Looks at this machine before a run does: cores, memory, limits, io_uring, the\n"
                            "directories that state would be offloaded to, GPUs, MPI. Each line is ok, a\n"
                            "warning, a failure, or says what was not measured, with a remedy.\n"
                            "Exit status: 0, or 1 if something fails.\n"
                            "  --nvme-path DIR,...  directories for offloading (default: the present one)\n"
                            "  --measure            write and read 1 GiB in each of them\n"
                            "  --json               the same as an object\n"
                            "  --strict             warnings fail, too\n";

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

static enum status run(int argc, char **argv, int *code)
{
    struct doctor d = {0};
    const char *list = ".", *path[PATHS];
    char text[4096 + 1];
    const struct cli_option all[] = {
        {"--nvme-path", &list, NULL}, {"--measure", NULL, &d.measure}, {"--json", NULL, &d.json}, {"--strict", NULL, &d.strict}};
    TRY(cli_options_read("doctor", argc, argv, all, sizeof all / sizeof *all, "--nvme-path DIR, --measure, --json and --strict"));
    if (strlen(list) >= sizeof text)
        return status_fail(ERR_INVALID, "doctor: --nvme-path has %zu bytes, at most %zu are possible", strlen(list),
                           sizeof text - 1);
    snprintf(text, sizeof text, "%s", list);
    d.n_paths = cut(text, path);
    d.path = path;
    if (d.n_paths == 0)
        return status_fail(ERR_INVALID, "doctor: --nvme-path names no directory");
    return doctor_run(&d, code);
}

int doctor_command(int argc, char **argv)
{
    int code = 0;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = run(argc, argv, &code);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    return st == OK ? code : cli_options_leave(st);
}
