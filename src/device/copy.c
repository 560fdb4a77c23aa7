/* memcpy, made to behave like a link. */
#include "device/copy.h"

#include "base/clock.h"
#include "base/num.h"

#include <string.h>

/* A throttled copy lands in so many parts, each as it is due: in one, the copy itself would come on top of the link's time. */
#define PARTS 8

static void sleep_until(int64_t due_ns)
{
    int64_t ns = due_ns - clock_ns();
    if (ns <= 0)
        return;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t) != 0) {
    }
}

void device_copy(const struct copy_link *link, void *dst, const void *src, int64_t bytes)
{
    int64_t began = clock_ns(), part = bytes;
    if (link->late)
        memset(dst, 0xff, (size_t)bytes); /* NaN in every float format */
    if (link->bytes_per_second > 0)
        part = ceil_div(bytes, PARTS);
    for (int64_t done = 0, n; done < bytes; done += n) {
        n = min_i64(part, bytes - done);
        if (link->bytes_per_second > 0)
            sleep_until(began + (int64_t)((double)(done + n) / link->bytes_per_second * 1e9));
        memcpy((char *)dst + done, (const char *)src + done, (size_t)n);
    }
}
