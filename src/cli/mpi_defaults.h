/* Setting the environment of mpiexec for ranks of one machine. Private to src/cli. */
#ifndef LTRAIN_CLI_MPI_DEFAULTS_H
#define LTRAIN_CLI_MPI_DEFAULTS_H

#include <stdio.h>

/* Sets variables that the user has not set, for n ranks on this machine, and LAUNCH_DEFAULTS (comm/launch.h). `notes` gets a
 * remark if another way is taken: shared memory, or the directory for files, has no room. */
void mpi_defaults_set(int n, FILE *notes);

#endif
