/* A memcpy that behaves like a link. */
#include "device/copy.h"

#include "base/clock.h"
#include "base/num.h"

#include <string.h>

/* Parts of a throttled copy; each is copied when it is due. More parts would each take a core from compute for a moment, unlike a
 * link: with 8, a step of short copies took 9% longer. */
#define PARTS 2
/* Roughly a core's copy rate: a part's copy starts earlier by the time it takes, so that it ends when the link would. */
#define COPY_BYTES_PER_SECOND 10e9

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
            clock_sleep_ns(began - clock_ns() +
                           (int64_t)(((double)(done + n) / link->bytes_per_second - (double)n / COPY_BYTES_PER_SECOND) * 1e9));
        memcpy((char *)dst + done, (const char *)src + done, (size_t)n);
    }
}
