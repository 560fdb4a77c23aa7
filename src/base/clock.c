/* Sleeping to the microsecond, and conditions that wait by the monotonic clock. */
#include "base/clock.h"

#include <sys/prctl.h>

int64_t clock_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void clock_sleep_ns(int64_t ns)
{
    static _Thread_local int sharp;
    if (!sharp)
        sharp = prctl(PR_SET_TIMERSLACK, 1000UL) == 0 ? 1 : -1; /* without this a sleep of 10 us takes 60 */
    if (ns <= 0)
        return;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t) != 0) {
    }
}

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t ns)
{
    pthread_cond_timedwait(c, lock, &(struct timespec){ns / 1000000000, ns % 1000000000});
}
