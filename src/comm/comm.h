/* Who takes part in a run. The self communicator is one rank talking to itself: gathers and reductions over it are aliases, so
 * programs for one rank hold no communication instructions. */
#ifndef LTRAIN_COMM_COMM_H
#define LTRAIN_COMM_COMM_H

#include <stdint.h>

struct comm {
    int rank, size;
    const char *source; /* where rank and size come from, for people; static */
};

struct comm comm_self(void);

/* The share of rank `rank` of n elements over `size` ranks: [*first, *first + *count), multiples of `grain` except the last.
 * Shares of all ranks tile [0, n). */
void comm_share(int64_t n, int64_t grain, int rank, int size, int64_t *first, int64_t *count);

#endif
