/* The MPI library's shared memory on a host. */
#ifndef LTRAIN_COMM_SHM_H
#define LTRAIN_COMM_SHM_H

#include <stddef.h>

/* Tells whether /dev/shm is too small for the segments of `ranks` ranks that start on this host; `text` then says what is free
 * and what is needed. Returns 0 also without /dev/shm: Open MPI then takes another directory. */
int shm_is_short(int ranks, char *text, size_t bytes);

#endif
