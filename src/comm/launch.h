/* Which of how many ranks this process is, as whoever started it says. */
#ifndef LTRAIN_COMM_LAUNCH_H
#define LTRAIN_COMM_LAUNCH_H

#include "base/status.h"

#define HOST_NAME 64

struct launch {
    int rank, size;
    int local_rank, local_size; /* among the ranks on this host; -1 if the launcher does not say */
    char source[64];            /* who said so, for people: "Open MPI", "torchrun", "single process" */
    char host[HOST_NAME];
};

/* What flags say; -1: not given. */
struct launch_flags {
    int rank, size, local_rank;
};

/* From flags (may be NULL), else torchrun, PALS, PMIx, Open MPI, MVAPICH, MPICH, Slurm variables, else a single process. Two that
 * know both rank and size must agree (ERR_INVALID names both), but for Slurm's: those count only for a process that srun itself
 * started and only where no other launcher speaks, since mpiexec inside an allocation inherits the variables of Slurm's own
 * daemons. */
enum status launch_detect(const struct launch_flags *flags, struct launch *out);

/* The environment variable that names those which ltrain itself has set for mpiexec, as ":A:B:". */
#define LAUNCH_DEFAULTS "LTRAIN_MPI_DEFAULTS"

/* One process alone. */
void launch_alone(struct launch *out);

#endif
