/* Options of the commands that take no settings. */
#ifndef LTRAIN_CLI_OPTIONS_H
#define LTRAIN_CLI_OPTIONS_H

#include "base/status.h"

/* An option and its place in the command's variables: one of the two pointers is set. */
struct cli_option {
    const char *name;
    const char **value; /* gets the option's value; with several, the last one counts */
    int *on;            /* becomes 1, for an option that takes no value */
};

/* Reads the arguments behind a command's name: --NAME VALUE, --NAME=VALUE or --NAME. all: list of the options, for messages.
 * ERR_INVALID: an unknown option, or one without a value. */
enum status cli_options_read(const char *command, int argc, char **argv, const struct cli_option *option, int n, const char *all);

/* Prints a failure and returns the command's exit status: 0, 1, or 2 for ERR_INVALID. */
int cli_options_leave(enum status st);

#endif
