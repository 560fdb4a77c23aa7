/* Tickets: each lane counts its retired instructions; others wait for a count. One board per executor. */
#ifndef LTRAIN_DEVICE_TICKETS_H
#define LTRAIN_DEVICE_TICKETS_H

#include "base/status.h"
#include "program/program.h"

#include <pthread.h>
#include <stdatomic.h>

struct tickets {
    _Atomic int64_t done[LANES];
    _Atomic int failed; /* status of the first failure */
    char message[1024]; /* sentence of the first failure, written once before `failed` is set */
    _Atomic int64_t waited_ns[LANES];
    pthread_mutex_t lock;
    /* The sleeping lanes, guarded by the lock. A lane is woken only when it can go on: on a busy machine each wake-up costs a
     * time slice. */
    struct {
        const struct program *p;
        const struct instr *in;       /* instruction for which the lane sleeps; NULL: none */
        int any;                      /* 1: the lane sleeps until any ticket changes */
        int (*can_go_on)(void *user); /* condition until which the lane sleeps; NULL: none */
        void *user;
        pthread_cond_t moved;
    } sleeper[LANES];
};

void tickets_init(struct tickets *t);
void tickets_destroy(struct tickets *t);
void tickets_reset(struct tickets *t);
/* Tells whether the waits of the program's instruction are satisfied now. */
int tickets_ready(const struct tickets *t, const struct program *p, const struct instr *in);
/* Waits on behalf of `lane` until the instruction's waits are satisfied; ERR_CANCELLED if some lane failed. */
enum status tickets_wait(struct tickets *t, enum lane lane, const struct program *p, const struct instr *in);
/* Waits on behalf of `lane` until can_go_on(user) holds, which depends on retired tickets and on what the lane's own thread does;
 * other threads call it, too. ERR_CANCELLED if some lane failed. */
enum status tickets_wait_until(struct tickets *t, enum lane lane, int (*can_go_on)(void *user), void *user);
/* Waits on behalf of `lane` until something moves, a few milliseconds at most. */
void tickets_sleep(struct tickets *t, enum lane lane);
/* Wakes the lanes in tickets_sleep. */
void tickets_nudge(struct tickets *t);
int tickets_failed(const struct tickets *t);
void tickets_retire(struct tickets *t, enum lane lane, int64_t ticket);
/* Records the calling thread's failure (the first one counts) and wakes everybody. */
void tickets_fail(struct tickets *t, enum status code);
/* Returns the first failure as this thread's own status. */
enum status tickets_status(const struct tickets *t);

#endif
