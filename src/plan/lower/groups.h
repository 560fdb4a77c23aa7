/* Groups of a unit's elements: the elements that are updated, summed over ranks and fetched together. */
#ifndef LTRAIN_PLAN_LOWER_GROUPS_H
#define LTRAIN_PLAN_LOWER_GROUPS_H

#include "model/model.h"
#include "plan/lower/strategy.h"

/* Elements [first, end) of a unit, the rows of a sharded value that hold them, and the comm lane whose members share them. With
 * share = shard_end - shard_first, member j holds `share` elements from first + j * share on, fewer if `end` comes before. */
struct group {
    int64_t first, end, shard_first, shard_end;
    enum lane lane;
};

/* Returns the type in which a unit's parameters are kept and used. */
static inline enum dtype plan_unit_type(const struct strategy *s, const struct model_unit *unit)
{
    return unit->fp32 ? F32 : s->key.dtype;
}
/* Tells whether a unit's trained parameters have fp32 masters of their own: if they are kept in a smaller type, or if only masters
 * are sharded. */
static inline int plan_has_masters(const struct strategy *s, const struct model_unit *unit)
{
    return plan_unit_type(s, unit) != F32 || s->key.zero == 1 || s->key.zero == 2;
}
/* Returns the index-th group of a unit's elements. */
struct group plan_group(const struct model *m, const struct strategy *s, int unit, int index);
/* Returns the number of groups that hold the first `elements` elements of a unit, which end at a group's border. */
int plan_groups(const struct model *m, const struct strategy *s, int unit, int64_t elements);

/* Returns the index-th group of the unit's packed bytes (quantised matrices): rows of a value that has one byte a row. It has as
 * many bytes as a group of elements has in storage type. */
struct group plan_packed_group(const struct model *m, const struct strategy *s, int unit, int index);
int plan_packed_groups(const struct model *m, const struct strategy *s, int unit);

/* Returns the first byte of a group's 8-bit moments, in a value that has one byte a row (base/blocks8.h). sharded: counted in one
 * rank's share. */
int64_t plan_moments_row(const struct model *m, const struct strategy *s, int unit, int index, int sharded);

#endif
