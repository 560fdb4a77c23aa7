/* Refusals of plans that do not fit, as ERR_NOFIT failures of one sentence. */
#ifndef LTRAIN_PLAN_REPORT_REFUSE_H
#define LTRAIN_PLAN_REPORT_REFUSE_H

#include "plan/report/advise.h"

/* Before anything is planned: refuses where by estimate no placement needs less than several times what there is, so that of all
 * changes only a shorter sequence could help. OK where planning may help. */
enum status refuse_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS]);

/* The refusal of a plan that does not fit: each tier that is too small, by how much, and the cheapest change in `advice` that
 * fits. */
enum status refuse_advised(const struct plan *p, const struct plan_request *s, const struct advice *advice);

/* The same, with the changes found here (advise_find). */
enum status refuse_plan(const struct plan *p, const struct model *m, const struct plan_request *s);

#endif
