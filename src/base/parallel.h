/* A few jobs at the same time. */
#ifndef LTRAIN_BASE_PARALLEL_H
#define LTRAIN_BASE_PARALLEL_H

#include "base/status.h"

#include <stddef.h>

#define PARALLEL_MOST 32

/* Runs n jobs (at most PARALLEL_MOST) of `size` bytes each at `jobs`, each on a thread of its own. The caller's thread runs the
 * first, and those for which no thread can be started. Returns when all have ended: the status of the first failed job, with its
 * message. */
enum status parallel_run(enum status (*run)(void *job), void *jobs, size_t size, int n);

#endif
