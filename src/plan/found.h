/* Plans of the search's candidates. Private to src/plan. */
#ifndef LTRAIN_PLAN_FOUND_H
#define LTRAIN_PLAN_FOUND_H

#include "plan/plan.h"
#include "plan/search/numerics.h"

/* Plans the best placements until one keeps its trial's promise. A plan on another grid than the default one mostly fits. If it
 * does not, or if it takes as long as the trial on the default grid, it is compared with the best plan there. The caller destroys
 * *out. */
enum status plan_numerics(const struct numerics *v, struct plan **out);

#endif
