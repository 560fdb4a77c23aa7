/* Sorting of tables with millions of entries: radix sort, in time proportional to their number. */
#ifndef LTRAIN_BASE_SORT_H
#define LTRAIN_BASE_SORT_H

#include <stdint.h>

/* Sorts index[n] by ascending key[index[i]]; entries with equal keys keep their order. No key may be NaN. Returns 0, with the
 * order unchanged, if memory runs out. */
int sort_by_key(const double *key, int *index, int n);

/* Sorts at[n] in ascending order. Returns 0, with the order unchanged, if memory runs out. */
int sort_int64(int64_t *at, int n);

#endif
