/* Setting the environment of mpiexec for ranks of one machine. Private to src/cli. */
#ifndef LTRAIN_CLI_MPI_DEFAULTS_H
#define LTRAIN_CLI_MPI_DEFAULTS_H

#include <stdio.h>

/* Sets variables that the user has not set, for n ranks on this machine, and LAUNCH_DEFAULTS (comm/launch.h). Prints a remark to
 * `notes` if shared memory, or the usual directory for Open MPI's files, has no room and something else is used instead. */
void mpi_defaults_set(int n, FILE *notes);

#endif
