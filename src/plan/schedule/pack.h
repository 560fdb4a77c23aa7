/* Offline storage allocation: addresses for buffers with known lifetimes. */
#ifndef LTRAIN_PLAN_SCHEDULE_PACK_H
#define LTRAIN_PLAN_SCHEDULE_PACK_H

#include "program/program.h"

/* Sets the address of every transient buffer of `tier` (persistent ones keep theirs) from its lifetime [t0, t1): buffers whose
 * lifetimes overlap get disjoint bytes at or above `base`. Tries several ways and keeps the best. Sets arena, lower_bound and
 * peak of the tier. ERR_NOMEM.
 *
 * A packing is good enough if it ends at or below `room` and exceeds the bytes that live at once by at most the share `slack`. If
 * these bytes alone exceed `room`, nothing is tried: the arena is INT64_MAX and addresses mean nothing. */
enum status pack_tier(struct program *p, enum tier tier, int64_t base, int64_t room, double slack);

/* Finds the most bytes of each tier that transient buffers hold at once, from their first instruction in the list to their last.
 * ERR_NOMEM. */
enum status pack_live_in_order(const struct program *p, int64_t out[TIERS]);
/* Finds the same separately for each of n moments; instruction i belongs to moment[i] < n. moment NULL: all belong to one moment. */
enum status pack_live_at(const struct program *p, const int *moment, int n, int64_t (*out)[TIERS]);

#endif
