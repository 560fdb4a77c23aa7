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
/* Returns the lane whose members share a unit's state: all ranks; of experts that are shared out, those with the same ones; of a
 * layer in slices, those with the same slice, although its groups of elements that all slices have are shared more widely. */
enum lane plan_unit_lane(const struct model *m, const struct strategy *s, int unit);
/* Returns the ZeRO stage of a unit: 0 if no other rank has the same elements (of a layer in slices: the same slice). */
int plan_unit_zero(const struct model *m, const struct strategy *s, int unit);
/* Tells whether a unit's trained parameters have fp32 masters of their own: if they are kept in a smaller type, or if only masters
 * are sharded. */
int plan_has_masters(const struct model *m, const struct strategy *s, int unit);
/* Groups and elements of units of experts that are shared out (model/share.h) are those of a rank's share; `m` is the whole model or
 * one with such units.
 *
 * Returns the index-th group of a unit's elements. */
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
