/* Slots on the device for experts of layers whose other experts are elsewhere: programs that continue a text by few tokens bring only
 * the experts that these tokens chose (ops/experts_keep.h). Private to src/plan/lower, but for what the planner asks of a model.
 *
 * Stacks of slots take the place of the layer's stacks: pairs are sorted by slot, and products are those of all slots. An expert's
 * product has the same bits wherever its matrix is. */
#ifndef LTRAIN_PLAN_LOWER_SLOTS_H
#define LTRAIN_PLAN_LOWER_SLOTS_H

#include "plan/lower/lowering.h"

/* Returns the elements of which each matrix of an expert is a whole multiple, so that groups of that size make an expert's matrices
 * extents of their own; 0: slots cannot take this model's experts, whose units have more than stacks stored as numbers. */
int64_t slots_piece(const struct model *m);

/* Returns the elements of all of a unit's slots. */
int64_t slots_elements(const struct lowering *L, int unit);
/* Tells whether this program takes the unit's experts from slots: if there are as many as its tokens can choose. */
int slots_serve(const struct lowering *L, int unit);
/* Returns the experts among which pairs are sorted: the unit's, or its slots. */
int32_t slots_experts(const struct lowering *L, int unit, int64_t experts);
/* Brings the experts of a chunk's ids into slots. slots: the value that gets each pair's slot. */
void slots_fill(struct lowering *L, int unit, struct value *ids, struct value *slots, int chunk);
/* Appends the slots' matrices of a stack. */
void arg_slots(struct lowering *L, int arg, int param);

#endif
