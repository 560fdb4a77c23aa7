/* One run has a directory to itself: RUN/run.lock, held by rank 0. Private to src/train. */
#ifndef LTRAIN_TRAIN_RUN_LOCK_H
#define LTRAIN_TRAIN_RUN_LOCK_H

#include "comm/comm.h"

struct run_lock; /* opaque */

/* Called by all ranks; dir exists. ERR_INVALID: another run has it, which the sentence names. On rank 0 *out holds it, on the
 * others it is NULL. Waits up to LOCK_PATIENCE seconds where only that shows whether an owner on another host is alive. */
enum status run_lock_take(struct comm *c, const char *dir, struct run_lock **out);
/* By rank 0 before it writes to the directory, be it a line of the log. ERR_IO: it was renamed or removed. ERR_INVALID: another run has taken it over. */
enum status run_lock_check(struct run_lock *l);
void run_lock_release(struct run_lock *l); /* NULL is fine */

/* For tests: what is otherwise found out. */
struct lock_rules {
    double patience, poll, settle; /* seconds */
    int shared;                    /* other hosts write to the directory, and their locks may not be seen; -1: as the file system is */
    int locks;                     /* 0: there are none, as on some file systems */
};
enum status run_lock_take_by(struct comm *c, const char *dir, const struct lock_rules *rules, struct run_lock **out);

#endif
