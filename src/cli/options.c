#include "cli/options.h"

#include <stdio.h>
#include <string.h>

/* Finds the option that an argument names. *equals: the value behind '='; NULL: there is none. */
static const struct cli_option *find(const char *arg, const struct cli_option *option, int n, const char **equals)
{
    const size_t length = strcspn(arg, "=");
    *equals = arg[length] ? arg + length + 1 : NULL;
    for (int i = 0; i < n; i++)
        if (strlen(option[i].name) == length && strncmp(arg, option[i].name, length) == 0)
            return &option[i];
    return NULL;
}

/* Reads the option at argv[*i] and moves *i to its last argument. */
static enum status read_one(const char *command, int argc, char **argv, int *i, const struct cli_option *option, int n,
                            const char *all)
{
    const char *value;
    const struct cli_option *o = find(argv[*i], option, n, &value);
    if (!o)
        return status_fail(ERR_INVALID, "%s: '%s' is not known; the options are %s", command, argv[*i], all);
    if (o->on) {
        *o->on = 1;
        return value ? status_fail(ERR_INVALID, "%s: %s takes no value: write %s alone", command, argv[*i], o->name) : OK;
    }
    if (!value && *i + 1 == argc)
        return status_fail(ERR_INVALID, "%s: %s has no value", command, o->name);
    if (!value && strncmp(argv[*i + 1], "--", 2) == 0)
        return status_fail(ERR_INVALID, "%s: %s has no value, but %s follows (%s=%s is a value like that)", command, o->name,
                           argv[*i + 1], o->name, argv[*i + 1]);
    *o->value = value ? value : argv[++*i];
    return (*o->value)[0] ? OK : status_fail(ERR_INVALID, "%s: %s is empty: give what it names", command, o->name);
}

enum status cli_options_read(const char *command, int argc, char **argv, const struct cli_option *option, int n, const char *all)
{
    for (int i = 0; i < argc; i++)
        TRY(read_one(command, argc, argv, &i, option, n, all));
    return OK;
}

int cli_options_leave(enum status st)
{
    if (st != OK)
        fprintf(stderr, "ltrain: %s\n", status_message());
    return st == OK ? 0 : st == ERR_INVALID ? 2 : 1;
}
