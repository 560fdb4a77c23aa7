/* Parts of a run that lives do without: measuring this machine, planning the same again, and the thread that shows that a run's owner is alive. */
#include "cluster.h"

#include "plan/plan.h"
#include "profile/sgemm.h"
#include "train/run_lock.h"

#include <stdint.h>
#include <stdlib.h>

enum status __wrap_profile_sgemm(double *flops);
enum status __wrap_profile_sgemm(double *flops)
{
    *flops = 1e9;
    return OK;
}

/* ---- the lock's thread ---- */

static int locking[WORLD_MOST]; /* 1: the rank is taking the lock */

enum status __real_run_lock_take(struct comm *c, const char *dir, struct run_lock **out);
enum status __wrap_run_lock_take(struct comm *c, const char *dir, struct run_lock **out);
enum status __wrap_run_lock_take(struct comm *c, const char *dir, struct run_lock **out)
{
    locking[world_rank()] = 1;
    const enum status st = __real_run_lock_take(c, dir, out);
    locking[world_rank()] = 0;
    return st;
}

static void *end_at_once(void *arg)
{
    (void)arg;
    return NULL;
}

int __real_sys_thread(void *thread, void *(*run)(void *), void *arg);
int __wrap_sys_thread(void *thread, void *(*run)(void *), void *arg);
/* A killed rank's thread would go on, and write to whatever has its descriptor's number then. */
int __wrap_sys_thread(void *thread, void *(*run)(void *), void *arg)
{
    return __real_sys_thread(thread, world_rank() >= 0 && locking[world_rank()] ? end_at_once : run, arg);
}
