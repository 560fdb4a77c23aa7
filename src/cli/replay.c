/* Arguments of `ltrain replay` and `ltrain compare`. */
#include "cli/replay.h"

#include "cli/options.h"
#include "replay/replay.h"

#include <stdio.h>
#include <string.h>

#define STEPS "--replay-steps="

static const char usage[] = "usage: ltrain compare A B\n\n"
                            "Compares two runs (their logs, and the checkpoints of steps that both have) or two\n"
                            "checkpoints (runs/NAME/checkpoints/step-NNNNNN) of any ranks, bit for bit. Prints the\n"
                            "first step, or tensor and row, that differs, and how many do, or \"equal\". The exit\n"
                            "status is 1 if something differs.\n";

int replay_arguments(int argc, char **argv, char **out)
{
    static char run[] = "--resume", steps[4096] = STEPS;
    int n = 0;
    for (int i = 0; i < argc; i++) {
        const char *value = NULL;
        if (i == 0 && strncmp(argv[0], "-", 1) != 0)
            out[n++] = run;
        if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            value = argv[++i];
        else if (strncmp(argv[i], "--steps=", strlen("--steps=")) == 0)
            value = argv[i] + strlen("--steps=");
        if (value)
            snprintf(steps, sizeof steps, STEPS "%s", value);
        out[n++] = value ? steps : argv[i];
    }
    return n;
}

static enum status compare(int argc, char **argv)
{
    if (argc > 0 && strncmp(argv[0], "--", 2) == 0)
        return status_fail(ERR_INVALID, "compare: '%s' is not known; ltrain compare takes two directories and no options",
                           argv[0]);
    if (argc != 2)
        return status_fail(ERR_INVALID, "compare: %s: give two runs, or two checkpoints, as ltrain compare runs/a runs/b",
                           argc < 2 ? "two directories are needed" : "more than two directories");
    return replay_compare(argv[0], argv[1]);
}

int compare_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = compare(argc, argv);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    fflush(stdout);
    return cli_options_leave(st);
}
