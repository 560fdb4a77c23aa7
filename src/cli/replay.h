/* `ltrain replay` and `ltrain compare`: reading their arguments. */
#ifndef LTRAIN_CLI_REPLAY_H
#define LTRAIN_CLI_REPLAY_H

#include "base/status.h"

/* Writes the arguments of `ltrain replay` as options of the table of keys: RUN becomes --resume RUN, --steps becomes
 * --replay-steps. out: room for argc + 1 arguments; returns their number. */
int replay_arguments(int argc, char **argv, char **out);

/* Runs `ltrain compare`; returns the exit status. */
int compare_command(int argc, char **argv);

#endif
