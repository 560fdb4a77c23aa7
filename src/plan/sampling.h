/* Plans of programs that read a text on and predict its next token: parameters and cached keys and values in any tier. */
#ifndef LTRAIN_PLAN_SAMPLING_H
#define LTRAIN_PLAN_SAMPLING_H

#include "plan/plan.h"

enum { SAMPLING_SHORT_ROWS = 32 }; /* of PLAN_PREFILL_SHORT: a question in a chat has some 30 tokens */

/* For texts of up to s->seq_len tokens on one rank: PLAN_PREFILL, PLAN_PREFILL_SHORT where that has fewer rows, and PLAN_DECODE.
 * Parameters lie where s->params says, the cache where s->acts does; where these are open, where a token takes least. Tiles:
 * rows are those of a prefill (row_chunk), and with them given blocks may be as small. If nothing fits, *out has fits = 0 and
 * what the smallest placement takes. */
enum status plan_sampling(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out);
/* The longest text, in steps of a block of its cache, that fits; 0: none does. */
enum status plan_sampling_longest(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int64_t *out);

#endif
