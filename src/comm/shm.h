/* Shared memory that the MPI library takes on a host. */
#ifndef LTRAIN_COMM_SHM_H
#define LTRAIN_COMM_SHM_H

#include <stddef.h>

/* Finds out whether /dev/shm is too small for the segments of `ranks` ranks that start on this host; `text` then says so for
 * people, with what is free and what is needed. 0, too, where there is no /dev/shm: Open MPI takes another directory then. */
int shm_is_short(int ranks, char *text, size_t bytes);

#endif
