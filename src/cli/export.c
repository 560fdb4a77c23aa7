/* `ltrain export`: reads its arguments. */
#include "cli/export.h"

#include "train/export.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: ltrain export --model RUN --to DIR [--merge [--original]] [--base DIR]\n\n"
                            "Copies the adapter that a run has trained, or merges it into its model.\n"
                            "  --model  a run's directory (its newest state counts), or one that holds an adapter\n"
                            "  --to     where it goes\n"
                            "  --merge  W + s B A in fp32, rounded once to the type that the model's files have\n"
                            "  --original  merge into the model's own weights where the adapter was trained beside those in NF4 (--base nf4)\n"
                            "  --base   the model that the adapter is of, where it is not where the adapter says\n";

static int value_of(int argc, char **argv, int *i, const char *name, const char **out)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0)
        return 0;
    if (argv[*i][n] == '=') {
        *out = argv[*i] + n + 1;
        return 1;
    }
    if (argv[*i][n] || *i + 1 >= argc)
        return 0;
    *out = argv[++*i];
    return 1;
}

static enum status run(int argc, char **argv)
{
    const char *model = NULL, *to = NULL, *base = NULL;
    enum export_form form = EXPORT_AS_IT_IS;
    int original = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--merge") == 0)
            form = EXPORT_MERGED;
        else if (strcmp(argv[i], "--original") == 0)
            original = 1;
        else if (!value_of(argc, argv, &i, "--model", &model) && !value_of(argc, argv, &i, "--to", &to) &&
                 !value_of(argc, argv, &i, "--base", &base))
            return status_fail(ERR_INVALID, "export: '%s' is not known, or has no value; the options are --model DIR, --to DIR, --merge, "
                                            "--original and --base DIR",
                               argv[i]);
    }
    if (!model || !to)
        return status_fail(ERR_INVALID, "export: %s is needed", model ? "--to DIR" : "--model RUN");
    if (original && form != EXPORT_MERGED)
        return status_fail(ERR_INVALID, "export: --original is what --merge adds the adapter to; without --merge the adapter alone is written");
    return export_model(model, base, to, original ? EXPORT_MERGED_ORIGINAL : form);
}

int export_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = run(argc, argv);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    if (st != OK)
        fprintf(stderr, "ltrain: %s\n", status_message());
    return st == OK ? 0 : st == ERR_INVALID ? 2 : 1;
}
