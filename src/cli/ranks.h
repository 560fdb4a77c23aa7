/* Several processes as one program: starting them, one set of settings, one voice on the terminal, one end. */
#ifndef LTRAIN_CLI_RANKS_H
#define LTRAIN_CLI_RANKS_H

#include "base/status.h"
#include "comm/comm.h"
#include "settings/read.h"

#include <stdio.h>

/* From here on only rank 0 prints: the others' stdout goes nowhere. */
void ranks_hush(const struct launch *l);
/* Runs `mpiexec -n N` of this program with the same arguments, on this machine, to its end; *code: the exit status; notes: where it is said that a signal has come. SIGTERM,
 * SIGINT and SIGHUP are passed on to the ranks, which save and leave; a second one ends them at once, a third one (or 10 s)
 * mpiexec too. */
enum status ranks_start(int n, char **argv, FILE *notes, int *code);
/* settings_read on every rank, as one: a failure is agreed; rank 0's clock names the run's directory; the settings must be equal.
 */
enum status ranks_read_settings(struct comm *c, int argc, char **argv, enum settings_use use, struct settings *out);
/* Prints the failure if there is one (an agreed one once, else each rank its own), leaves the communicator and returns the exit
 * status. After a failure that was not agreed it does not return. */
int ranks_leave(struct comm *c, enum status st);

#endif
