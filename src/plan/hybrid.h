/* Plans of all ranks where the mesh is open, slices and stages of layers included. */
#ifndef LTRAIN_PLAN_HYBRID_H
#define LTRAIN_PLAN_HYBRID_H

#include "plan/plan.h"

/* Plans as plan_stages_create does. If s->open_parts leaves slices or stages of layers open and these promise a faster step than whole
 * layers, both are planned briefly, and the faster one is taken; so are slices of sequences that given stages leave open. place: the
 * rank's place in the mesh. */
enum status plan_ranks_create(const struct model *m, const struct plan_request *s, int place, const int64_t limit[TIERS],
                              struct plan **out);

#endif
