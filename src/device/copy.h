/* Copies between host and device memory of the CPU backend. */
#ifndef LTRAIN_DEVICE_COPY_H
#define LTRAIN_DEVICE_COPY_H

#include <stdint.h>

struct copy_link {
    int late;                /* 1: as cpu:discrete does, the target is poisoned before any part lands */
    double bytes_per_second; /* 0: as fast as memory allows */
};

/* Copies, and blocks for as long as the link would take. */
void device_copy(const struct copy_link *link, void *dst, const void *src, int64_t bytes);

#endif
