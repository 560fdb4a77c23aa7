/* Monotonic time: nothing in ltrain waits by the wall clock, which may be set at any moment. */
#ifndef LTRAIN_BASE_CLOCK_H
#define LTRAIN_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_seconds(void)
{
    return (double)clock_ns() * 1e-9;
}

/* Returns the time of day, in which files' times are given; never used for waiting. */
int64_t clock_wall_ns(void);

/* Sleeps for ns nanoseconds, signals or not; the real time is some microseconds longer. The kernel's timer slack, which would add
 * 50 us, is turned off. */
void clock_sleep_ns(int64_t ns);

/* Makes a condition for clock_cond_wait. */
void clock_cond_init(pthread_cond_t *c);
/* Waits for a signal until the time `ns` of clock_ns; the caller holds the lock. May return earlier, as waits on conditions do. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t ns);

#endif
