/* Running several processes as one program: one start, one set of settings, one voice on the terminal, one end. */
#ifndef LTRAIN_CLI_RANKS_H
#define LTRAIN_CLI_RANKS_H

#include "base/status.h"
#include "comm/comm.h"

#include <stdio.h>

/* Sends the stdout of all ranks but 0 nowhere: from here on only rank 0 prints. */
void ranks_hush(const struct launch *l);
/* Runs `mpiexec -n N` of this program with the same arguments, on this machine, to its end; with a dashboard, one process without
 * mpiexec, too. *code: the exit status; notes: stream that is told of a signal.
 *
 * SIGTERM, SIGINT and SIGHUP are passed on to the ranks, which save and leave. A second one ends them at once, a third one (or 10
 * s) ends mpiexec, too. */
enum status ranks_start(int n, int with_dashboard, char **argv, FILE *notes, int *code);
/* Tells whether this process was started by ranks_start. */
int ranks_are_started(void);
/* Prints a failure (an agreed one once, else each rank its own), leaves the communicator and returns the exit status. After a
 * failure that was not agreed it does not return. */
int ranks_leave(struct comm *c, enum status st);

#endif
