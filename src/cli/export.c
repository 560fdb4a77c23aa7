/* `ltrain export`: reading its arguments. */
#include "cli/export.h"

#include "cli/options.h"
#include "export/export.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: ltrain export --model RUN --to DIR [--original] [--base DIR]\n"
    "       ltrain export --model RUN --to DIR --adapter [--base DIR]\n"
    "       ltrain export --model MODEL --to DIR --quantize nf4|int8\n\n"
    "Writes a whole model: the adapter that a run has trained, merged into its base (W + s B A in fp32, rounded once to the type\n"
    "that the base's files have). Or the adapter alone; or a model in bitsandbytes' layout.\n"
    "  --model  a run's directory (its newest state counts), or one that holds an adapter\n"
    "  --to     where it goes\n"
    "  --adapter   the adapter alone, as PEFT reads it\n"
    "  --original  merge into the model's own weights where the adapter was trained beside those in NF4 or int8 (--base)\n"
    "  --base   the model that the adapter is of, where it is not where the adapter says\n"
    "  --quantize  matrices of a whole model's layers in NF4 (4.13 bits an element) or int8, as transformers and bitsandbytes\n"
    "           read them; everything else as it is\n";

struct options {
    const char *model, *to, *base, *quantize;
    enum export_form form;
    int original;
};

static enum status read_options(int argc, char **argv, struct options *o)
{
    int alone = 0;
    const struct cli_option all[] = {{"--model", &o->model, NULL}, {"--to", &o->to, NULL},
                                     {"--base", &o->base, NULL},   {"--quantize", &o->quantize, NULL},
                                     {"--adapter", NULL, &alone},  {"--original", NULL, &o->original}};
    TRY(cli_options_read("export", argc, argv, all, sizeof all / sizeof *all,
                         "--model DIR, --to DIR, --adapter, --original, --base DIR and --quantize nf4|int8"));
    o->form = alone ? EXPORT_ADAPTER : EXPORT_MERGED;
    if (!o->model || !o->to)
        return status_fail(ERR_INVALID, "export: %s is needed", o->model ? "--to DIR" : "--model RUN");
    if (o->original && alone)
        return status_fail(ERR_INVALID,
                           "export: --original is what the adapter is merged into, and --adapter writes it alone: leave one out");
    return OK;
}

static enum status quantise(const struct options *o)
{
    const int int8 = strcmp(o->quantize, "int8") == 0;
    if (!int8 && strcmp(o->quantize, "nf4") != 0)
        return status_fail(ERR_INVALID, "export: --quantize is '%.40s'; it is nf4 or int8", o->quantize);
    const char *other = o->base ? "--base" : o->original ? "--original" : o->form == EXPORT_ADAPTER ? "--adapter" : NULL;
    if (other)
        return status_fail(
            ERR_INVALID,
            "export: --quantize writes a whole model, and %s is of an adapter: merge it first, without --quantize, and "
            "quantise what that has written",
            other);
    return export_quantised(o->model, o->to, int8 ? BASE_INT8 : BASE_NF4);
}

static enum status run(int argc, char **argv)
{
    struct options o = {0};
    TRY(read_options(argc, argv, &o));
    return o.quantize ? quantise(&o) : export_model(o.model, o.base, o.to, o.original ? EXPORT_MERGED_ORIGINAL : o.form);
}

int export_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = run(argc, argv);
    if (st == OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = status_fail(ERR_IO, "cannot write: standard output is full or closed");
    return cli_options_leave(st);
}
