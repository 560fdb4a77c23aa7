/* What is said of changes, and refusals. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_TEXT_H
#define LTRAIN_PLAN_REPORT_ADVISE_TEXT_H

#include "plan/report/advise.h"

/* The three cheapest, two lines each: what to type, what it gives. */
void changes_print(const struct plan *p, const struct changes *c, FILE *f);

/* Before anything is planned: where by estimate no placement needs less than several times what there is, so that of all changes
 * only a shorter sequence could help, the refusal as an ERR_NOFIT failure. OK where planning may help. */
enum status changes_refuse_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS]);

/* A refusal as an ERR_NOFIT failure: which tier, the excess, and the cheapest change that fits. */
enum status changes_refuse(const struct plan *p, const struct plan_request *s, const struct changes *c);

/* A refusal: which tier, the excess and the cheapest change that fits (found by planning again), as an ERR_NOFIT failure. */
enum status plan_refuse(const struct plan *p, const struct model *m, const struct plan_request *s);

#endif
