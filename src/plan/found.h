/* Plans of what the search has found. Private to src/plan. */
#ifndef LTRAIN_PLAN_FOUND_H
#define LTRAIN_PLAN_FOUND_H

#include "plan/plan.h"
#include "plan/search/numerics.h"

/* Plans the best placements until one takes what its trial said. One on another grid than the default one mostly fits; if not, or
 * if it takes as long as the trial on the default grid, the best plan there is compared with it. The caller destroys *out. */
enum status plan_numerics(const struct numerics *v, struct plan **out);

#endif
