/* A time of day that is three seconds ahead, for a process that loads this first. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AHEAD 3 /* seconds */

/* Replaces the library's function. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    const int failed = (int)syscall(SYS_clock_gettime, id, t);
    if (!failed && id == CLOCK_REALTIME)
        t->tv_sec += AHEAD;
    return failed;
}
