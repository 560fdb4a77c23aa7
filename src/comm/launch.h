/* This process's rank among the others, as its launcher tells it. */
#ifndef LTRAIN_COMM_LAUNCH_H
#define LTRAIN_COMM_LAUNCH_H

#include "base/status.h"

#include <stddef.h>

#define HOST_NAME 64

struct launch {
    int rank, size;
    int local_rank, local_size; /* among the ranks on this host; -1 if the launcher does not say */
    char source[64];            /* launcher, for messages: "Open MPI", "torchrun", "single process" */
    char host[HOST_NAME];
};

/* Numbers given by flags; -1: not given. */
struct launch_flags {
    int rank, size, local_rank;
};

/* Finds the rank and the number of ranks: from flags (may be NULL), else from variables of torchrun, PALS, PMIx, Open MPI,
 * MVAPICH, MPICH, Slurm, else a single process. Two sources that know both numbers must agree (ERR_INVALID names both).
 *
 * Slurm's variables count only for a process that srun itself started, and only if no other launcher speaks: mpiexec inside an
 * allocation inherits the variables of Slurm's own daemons. */
enum status launch_detect(const struct launch_flags *flags, struct launch *out);

/* Environment variable with the names of variables that ltrain itself has set for mpiexec, as ":A:B:". */
#define LAUNCH_DEFAULTS "LTRAIN_MPI_DEFAULTS"

/* Says of each MPI which library of it is here: "Open MPI: libmpi.so.40; MPICH: is not here". Returns the number found. */
int wire_found(char *text, size_t size);

/* Describes one process alone. */
void launch_alone(struct launch *out);

#endif
