/* A few jobs at the same time. */
#ifndef LTRAIN_BASE_PARALLEL_H
#define LTRAIN_BASE_PARALLEL_H

#include "base/status.h"

#include <stddef.h>

#define PARALLEL_MOST 32

/* Runs the n jobs (at most PARALLEL_MOST) of `size` bytes each that stand at `jobs`, every one on a thread of its own, the first
 * on the caller's, which runs what no thread can be started for, too. All have ended when it returns: the status of the first of
 * them that failed, with its message. */
enum status parallel_run(enum status (*run)(void *job), void *jobs, size_t size, int n);

#endif
