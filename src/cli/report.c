/* `ltrain report`: reading its arguments. */
#include "cli/report.h"

#include "cli/options.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: ltrain report RUN [RUN ...] [SCORES.json ...] [--to FILE]\n"
                            "       ltrain report --keys\n\n"
                            "Writes one HTML file that shows runs, side by side if they are several: loss, rates,\n"
                            "memory and time beside the plan's, what compute waited for, settings. It needs no\n"
                            "network, and prints well. A run that goes on can be looked at, too.\n"
                            "  RUN          a run's directory (--out)\n"
                            "  SCORES.json  what ltrain eval --tasks ... --json printed: a map of scores by length and depth\n"
                            "  --to FILE    the file (default: report.html in the run's directory, or, of several\n"
                            "               runs, in the present one); an older report is replaced\n"
                            "  --keys       print what the keys of metrics.jsonl mean\n";

static enum status run(int argc, char **argv)
{
    const char *path[REPORT_PATHS_MAX];
    struct report_request r = {.path = path};
    int keys = 0;
    const struct cli_option all[] = {{"--to", &r.to, NULL}, {"--keys", NULL, &keys}};
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0) {
            const int takes = strcmp(argv[i], "--to") == 0 && i + 1 < argc ? 2 : 1;
            TRY(cli_options_read("report", takes, argv + i, all, sizeof all / sizeof *all, "--to FILE and --keys"));
            i += takes - 1;
            continue;
        }
        if (r.n_paths == REPORT_PATHS_MAX)
            return status_fail(ERR_INVALID, "report: more than %d runs and files", REPORT_PATHS_MAX);
        path[r.n_paths++] = argv[i];
    }
    if (keys) {
        if (r.n_paths > 0 || r.to)
            return status_fail(ERR_INVALID, "report: --keys prints a list and reads no run: leave %s out",
                               r.to ? "--to" : path[0]);
        report_print_keys(stdout);
        return OK;
    }
    if (r.n_paths == 0)
        return status_fail(ERR_INVALID, "report: which run? give its directory, for example ltrain report runs/kjv");
    return report_write(&r);
}

int report_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = run(argc, argv);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    return cli_options_leave(st);
}
