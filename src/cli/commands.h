/* The commands of ltrain. */
#ifndef LTRAIN_CLI_COMMANDS_H
#define LTRAIN_CLI_COMMANDS_H

#include "comm/comm.h"
#include "settings/read.h"

struct command; /* opaque */

/* Returns the command of that name; NULL: there is none. ltrain trains if no command is named: "train". */
const struct command *command_find(const char *name);
/* Refuses a name that is no command's and lists the commands. */
enum status command_refuse(const char *name);
/* Runs a command that takes no settings and has no ranks; argv: the arguments behind its name. Returns 0 if the command is not
 * one of these, else 1 and the exit status in *code. */
int command_runs_alone(const struct command *x, int argc, char **argv, int *code);
/* Prints the usage and the options. */
void command_help(const struct command *x);

/* A command line of ltrain. */
struct command_line {
    int argc;
    char **argv;
    const struct settings_flags *flags; /* options behind the command's name */
};
/* Reads the settings and runs the command, on all ranks. *code: the exit status, if all goes well. */
enum status command_run(const struct command *x, struct comm *c, const struct command_line *line, int *code);

#endif
