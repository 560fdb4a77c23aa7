/* Refusals of plans that do not fit, as ERR_NOFIT failures of one sentence. */
#ifndef LTRAIN_PLAN_REPORT_REFUSE_H
#define LTRAIN_PLAN_REPORT_REFUSE_H

#include "plan/report/advise.h"

/* Refuses, before anything is planned, a request whose every placement needs several times the available memory by estimate: only
 * a shorter sequence could help. OK if planning may help. */
enum status refuse_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS]);

/* Refuses a plan that does not fit. The sentence names each tier that is too small, by how much, and the cheapest change in
 * `advice` that fits. */
enum status refuse_advised(const struct plan *p, const struct plan_request *s, const struct advice *advice);

/* Refuses a plan as refuse_advised does, with changes that this function finds (advise_find). */
enum status refuse_plan(const struct plan *p, const struct model *m, const struct plan_request *s);

#endif
