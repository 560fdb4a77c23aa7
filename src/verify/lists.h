/* Lists of numbers by index. */
#ifndef LTRAIN_VERIFY_LISTS_H
#define LTRAIN_VERIFY_LISTS_H

#include <stdint.h>

/* Lists back to back: list i is at[first[i]] .. at[first[i + 1] - 1]. */
struct lists {
    int32_t *first, *at;
};

/* Makes room for n lists with `total` numbers in all; `first` is zeroed. Returns 0 if memory is short; the caller calls
 * lists_destroy in any case. */
int lists_create(struct lists *l, int n, int64_t total);
void lists_destroy(struct lists *l);

#endif
