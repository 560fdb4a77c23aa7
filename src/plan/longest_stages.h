/* The longest sequence that fits a pipeline's stages. */
#ifndef LTRAIN_PLAN_LONGEST_STAGES_H
#define LTRAIN_PLAN_LONGEST_STAGES_H

#include "plan/plan.h"

/* Finds it as plan_longest does (max_seq.h), but by brief plans of whole steps, since slots and slices grow with the number of pieces.
 * place: this rank's place, whose stage's plan *out is. s->mesh has stages. ERR_INVALID: the model learns positions. */
enum status plan_longest_stages(const struct model *m, struct plan_request *s, int ranks, int per_host, int place,
                                const int64_t limit[TIERS], struct plan **out);

#endif
