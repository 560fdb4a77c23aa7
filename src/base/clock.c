/* Sleeping to the microsecond. */
#include "base/clock.h"

#include <sys/prctl.h>

void clock_sleep_ns(int64_t ns)
{
    static _Thread_local int sharp;
    if (!sharp)
        sharp = prctl(PR_SET_TIMERSLACK, 1000UL) == 0 ? 1 : -1; /* else 10 us become 60 */
    if (ns <= 0)
        return;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t) != 0) {
    }
}
