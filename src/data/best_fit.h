/* Bin packing: best fit decreasing. Private to this folder. */
#ifndef LTRAIN_DATA_BEST_FIT_H
#define LTRAIN_DATA_BEST_FIT_H

#include "base/status.h"

#include <stdint.h>

/* The n sizes (1 .. capacity, at most INT32_MAX of them) go into bins, the largest first, equal ones in their order, each into the one
 * with the least room that is enough. bin [n]: of each size; bins are numbered as they are opened. O(n), 8 bytes a size and 4 a unit of
 * capacity. ERR_NOMEM. */
enum status best_fit(const int32_t *size, int64_t n, int64_t capacity, int32_t *bin, int64_t *bins);

#endif
