/* Blocks of cached keys and values: the slots that hold them, and the predicates under which programs attend them.
 *
 * A text's tokens are cut into blocks. The block that is being filled, the tail, has a home of its own. Whole blocks lie in
 * slots: block j is in slot j mod slots. The layers of a mask have as many slots as its queries can reach. The caller that runs
 * the programs moves a full tail into its slot between two of them. */
#ifndef LTRAIN_PLAN_LOWER_CACHED_H
#define LTRAIN_PLAN_LOWER_CACHED_H

#include "model/model.h"
#include "plan/lower/strategy.h"

/* Returns the number of slots of the layers of a mask; 0: all tokens are in the tail. */
int64_t cached_slots(const struct model *m, const struct strategy *s, int mask);
/* Returns the predicate of a slot, from 1 on; it holds if some query of the program attends the slot's block. */
int cached_predicate(const struct model *m, const struct strategy *s, int mask, int64_t slot);
/* Returns the number of predicates of all masks. */
int cached_predicates(const struct model *m, const struct strategy *s);

#endif
