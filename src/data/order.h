/* The order of sequences: the source of sequence number `cursor`, and its number within the source, computed from the cursor
 * alone. Private to this folder. */
#ifndef LTRAIN_DATA_ORDER_H
#define LTRAIN_DATA_ORDER_H

#include "base/status.h"

#include <stdint.h>

/* Returns element i of a seeded permutation of 0 .. n-1, which differs from epoch to epoch. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n);

struct mixture;

/* Creates the order of sources. share [n], n <= 64: each source's share of all sequences, in any positive scale. ERR_INVALID: a
 * share is so small that the source never comes; the message has its name (name [n]). */
enum status mixture_create(const double *share, const char *const *name, int n, struct mixture **out);
void mixture_destroy(struct mixture *m);
/* Returns the source of sequence `cursor`. *before: number of earlier sequences of the same source. O(1). */
int mixture_at(const struct mixture *m, uint64_t cursor, uint64_t *before);
/* Counts the sequences of that source among the first `cursor`. */
uint64_t mixture_count(const struct mixture *m, uint64_t cursor, int source);

#endif
