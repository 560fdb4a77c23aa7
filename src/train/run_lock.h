/* Exclusive use of a run's directory: RUN/run.lock, held by rank 0. Private to src/train. */
#ifndef LTRAIN_TRAIN_RUN_LOCK_H
#define LTRAIN_TRAIN_RUN_LOCK_H

#include "comm/comm.h"

struct run_lock; /* opaque */

/* Takes the lock of `dir`, which exists. All ranks call it; *out is NULL except on rank 0. Waits up to LOCK_PATIENCE seconds if
 * only that shows whether an owner on another host is alive. ERR_INVALID: another run has the lock; the message names it. */
enum status run_lock_take(struct comm *c, const char *dir, struct run_lock **out);
/* Makes sure that the lock is still held, before every write to the directory, even a line of the log (rank 0 only). ERR_IO: the
 * directory was renamed or removed. ERR_INVALID: another run has taken the directory over. */
enum status run_lock_check(struct run_lock *l);
void run_lock_release(struct run_lock *l); /* NULL is fine */

/* Rules of a lock. Tests set them; runs derive them from the directory's file system. */
struct lock_rules {
    double patience; /* longest wait for an owner on another host to show that it is alive, seconds */
    double poll;     /* seconds between two looks at the lock while waiting */
    double settle;   /* seconds between taking the lock and looking again whether another run has taken it meanwhile */
    int shared;      /* 1: other hosts write to the directory, and their locks may not be seen; -1: as the file system is */
    int locks;       /* 0: no locks, as on some file systems */
};
enum status run_lock_take_by(struct comm *c, const char *dir, const struct lock_rules *rules, struct run_lock **out);

#endif
