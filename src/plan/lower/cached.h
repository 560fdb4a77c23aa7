/* Blocks of cached keys and values: which slots hold them, and under which predicates programs attend them.
 *
 * A text's tokens are cut into blocks. The one that is being filled, the tail, has a home of its own; whole ones lie in slots, of
 * which the layers of a mask have as many as its queries can reach: block j is in slot j mod slots. Whoever runs the programs
 * moves a tail that is full into its slot, between two of them. */
#ifndef LTRAIN_PLAN_LOWER_CACHED_H
#define LTRAIN_PLAN_LOWER_CACHED_H

#include "model/model.h"
#include "plan/lower/strategy.h"

/* Slots of the layers of a mask; 0: all tokens are in the tail. */
int64_t cached_slots(const struct model *m, const struct strategy *s, int mask);
/* The predicate of a slot, from 1 on: its block is attended by some query of the program. */
int cached_predicate(const struct model *m, const struct strategy *s, int mask, int64_t slot);
/* The number of predicates of all masks. */
int cached_predicates(const struct model *m, const struct strategy *s);

#endif
