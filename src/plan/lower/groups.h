/* Groups of a unit's elements: what is updated, summed over ranks and fetched together. */
#ifndef LTRAIN_PLAN_LOWER_GROUPS_H
#define LTRAIN_PLAN_LOWER_GROUPS_H

#include "model/model.h"
#include "plan/lower/strategy.h"

/* Elements [first, end) of a unit, and the rows of a sharded value that hold them. */
struct group {
    int64_t first, end, shard_first, shard_end;
};

/* The index-th group of a unit's elements. Rank r holds its elements from first + r * share on, share = shard_end - shard_first
 * of them, unless `end` comes earlier. */
struct group plan_group(const struct model *m, const struct strategy *s, int unit, int index);
/* Groups that hold the first `elements` elements of a unit, which end at a group's border. */
int plan_groups(const struct model *m, const struct strategy *s, int unit, int64_t elements);

/* Quantised matrices: the index-th group of the unit's packed bytes, as many as a group of elements has; rows of a value that has one
 * byte a row. */
struct group plan_packed_group(const struct model *m, const struct strategy *s, int unit, int index);
int plan_packed_groups(const struct model *m, const struct strategy *s, int unit);

/* Moments in I8: the group's bytes of a value that has one byte a row (base/blocks8.h): those of its elements, or of one rank's share. */
int64_t plan_moments_row(const struct model *m, const struct strategy *s, int unit, int index, int sharded);

#endif
