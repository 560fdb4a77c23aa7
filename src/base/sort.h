/* Sorting of tables with millions of entries: radix sort, in time proportional to their number. */
#ifndef LTRAIN_BASE_SORT_H
#define LTRAIN_BASE_SORT_H

#include <stdint.h>

/* Puts index[n] into the order of ascending key[index[i]]; equal keys stay in the order given. No key is NaN. Returns 0, with the
 * order as it was, out of memory. */
int sort_by_key(const double *key, int *index, int n);

/* Sorts at[n] in ascending order. Returns 0, with the order as it was, out of memory. */
int sort_int64(int64_t *at, int n);

#endif
