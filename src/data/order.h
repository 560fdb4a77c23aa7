/* Which sequence comes next: of which source, and which of its sequences; all from the number of sequences before. Private to this folder. */
#ifndef LTRAIN_DATA_ORDER_H
#define LTRAIN_DATA_ORDER_H

#include "base/status.h"

#include <stdint.h>

/* Place `i` of a seeded permutation of 0 .. n-1, another one in each epoch. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n);

struct mixture;

/* share [n], n <= 64: of each source's sequences among all, any positive scale. ERR_INVALID: one is so small that it never comes; the
 * sentence has its name [n]. */
enum status mixture_create(const double *share, const char *const *name, int n, struct mixture **out);
void mixture_destroy(struct mixture *m);
/* The source of sequence `cursor`, and how many of that source came before it: O(1). */
int mixture_at(const struct mixture *m, uint64_t cursor, uint64_t *before);
/* How many of the first `cursor` sequences are of that source. */
uint64_t mixture_count(const struct mixture *m, uint64_t cursor, int source);

#endif
