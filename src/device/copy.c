/* memcpy, made to behave like a link. */
#include "device/copy.h"

#include "base/clock.h"

#include <string.h>

void device_copy(const struct copy_link *link, void *dst, const void *src, int64_t bytes)
{
    int64_t began = clock_ns();
    if (link->late)
        memset(dst, 0xff, (size_t)bytes); /* NaN in every float format */
    if (link->bytes_per_second > 0) {
        int64_t ns = (int64_t)((double)bytes / link->bytes_per_second * 1e9) - (clock_ns() - began);
        if (ns > 0) {
            struct timespec t = {ns / 1000000000, ns % 1000000000};
            while (nanosleep(&t, &t) != 0) {
            }
        }
    }
    memcpy(dst, src, (size_t)bytes);
}
