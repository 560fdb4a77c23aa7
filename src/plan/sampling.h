/* Plans of programs that continue a text (read it and predict its next token), with parameters and cached keys and values in any
 * tier. */
#ifndef LTRAIN_PLAN_SAMPLING_H
#define LTRAIN_PLAN_SAMPLING_H

#include "plan/plan.h"

enum { SAMPLING_SHORT_ROWS = 32 }; /* rows of PLAN_PREFILL_SHORT: a question in a chat has some 30 tokens */

/* Plans for texts of up to s->seq_len tokens on one rank: PLAN_PREFILL, PLAN_PREFILL_SHORT if it has fewer rows, and PLAN_DECODE.
 * If nothing fits, *out has fits = 0 and the bytes of the smallest placement.
 *
 * s->params gives the tier of parameters, s->experts that of experts, s->acts the cache's; open tiers are chosen for the least time
 * per token. Experts that are not on the device have slots there, as many as memory is left for, if PLAN_DECODE can take them from
 * slots (plan/lower/slots.h). s->row_chunk:
 * rows of a prefill; if given, blocks may be as small. */
enum status plan_sampling(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out);
/* Finds the longest text that fits, in steps of a block of the cache; 0: no text fits. */
enum status plan_sampling_longest(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int64_t *out);

#endif
