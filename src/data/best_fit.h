/* Bin packing: best fit decreasing. Private to this folder. */
#ifndef LTRAIN_DATA_BEST_FIT_H
#define LTRAIN_DATA_BEST_FIT_H

#include "base/status.h"

#include <stdint.h>

/* Packs n sizes (1 .. capacity, at most INT32_MAX of them) into bins: the largest first, equal sizes in their given order, each
 * into the bin with the least room that is enough. bin [n]: the bin of each size; bins are numbered as they are opened. O(n)
 * time; memory: 8 bytes a size and 4 a unit of capacity. ERR_NOMEM: memory ran out. */
enum status best_fit(const int32_t *size, int64_t n, int64_t capacity, int32_t *bin, int64_t *bins);

#endif
