/* Packing in order of time. Private to pack.c. */
#ifndef LTRAIN_PLAN_SCHEDULE_PACK_SWEEP_H
#define LTRAIN_PLAN_SCHEDULE_PACK_SWEEP_H

#include "program/program.h"

/* Returns the bytes that a buffer takes in an arena. */
static inline int64_t pack_padded(const struct buffer *b)
{
    return round_up(b->bytes > 0 ? b->bytes : 1, BUFFER_ALIGN);
}

/* Lists beginnings (2 i + 1) and ends (2 i) of the lifetimes of buffers order[i], i < n (order NULL: of all n), in order of time.
 * Ends come first at the same moment. The caller frees the list; NULL: out of memory. */
int *pack_moments(const struct buffer *buffers, const int *order, int n);

/* Sweeps over the moments of the n buffers in `order` (pack_moments) in several ways, until the arena ends at or below `enough`.
 * Keeps the addresses of the best. bound: base plus the bytes that live at once; no arena ends below it. Returns the end of the
 * highest buffer; -1: out of memory. */
int64_t pack_sweep(struct buffer *buffers, const int *order, const int *moment, int n, int64_t base, int64_t bound,
                   int64_t enough);

/* Sweeps around n_placed buffers that have their places: address[k] is the address of order[placed[k]]. Sorts `placed`. Keeps the
 * addresses and returns their end if that is below `most`, else returns `most`; -1: out of memory. */
int64_t pack_sweep_around(struct buffer *buffers, const int *order, const int *moment, int n, int64_t base, int64_t bound,
                          int64_t most, int *placed, const int64_t *address, int n_placed);

#endif
