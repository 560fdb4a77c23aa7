/* Slots on the device for experts of layers whose other experts are elsewhere: programs that continue a text by few tokens bring only
 * the experts that these tokens chose (ops/experts_keep.h). Private to src/plan/lower, but for what the planner asks of a model.
 *
 * Stacks of slots take the place of the layer's stacks: pairs are sorted by slot, and products are those of all slots. An expert's
 * product has the same bits wherever its matrix is. */
#ifndef LTRAIN_PLAN_LOWER_SLOTS_H
#define LTRAIN_PLAN_LOWER_SLOTS_H

#include "plan/lower/lowering.h"

/* Tells whether slots can take this model's experts: if all that their units have is divided by experts. */
int slots_suit(const struct model *m);
/* Returns the elements of a group for experts on drives, whole pages. Each matrix of an expert is a whole number of groups where that
 * makes neither parts of pages nor too many groups. */
int64_t slots_group(const struct model *m, enum dtype type);

/* Returns the elements of a part of all of a unit's slots; of quantised matrices bytes. */
int64_t slots_size(const struct lowering *L, int unit, enum slot_part part);
/* Tells whether this program takes the unit's experts from slots: if there are as many as its tokens can choose. */
int slots_serve(const struct lowering *L, int unit);
/* Returns the experts among which pairs are sorted: the unit's, or its slots. */
int32_t slots_experts(const struct lowering *L, int unit, int64_t experts);
/* Brings the experts of a chunk's ids into slots. slots: the value that gets each pair's slot. */
void slots_fill(struct lowering *L, int unit, struct value *ids, struct value *slots, int chunk);
/* Appends elements, or bytes, [first, first + n) of the slots' matrices of a stack. */
void arg_slots(struct lowering *L, int arg, int param, int64_t first, int64_t n);
/* Appends what experts, or slots if these serve, [first, first + count) have of a stack. */
void arg_experts(struct lowering *L, int arg, int param, int64_t first, int64_t count);

#endif
