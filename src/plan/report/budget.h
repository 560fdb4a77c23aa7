/* The budgets that a plan has to fit: the flags that set them, and who shares them. */
#ifndef LTRAIN_PLAN_REPORT_BUDGET_H
#define LTRAIN_PLAN_REPORT_BUDGET_H

#include "plan/plan.h"

/* The flag that sets a tier's budget. */
extern const char *const budget_flag[TIERS];
/* The flag that explains a tier's budget: "--nvme none" for drives that the settings rule out, else budget_flag. */
const char *budget_flag_given(const struct plan_request *s, enum tier t);
/* What limits this machine's memory (settings->memory_limit), if that is where the tier's budget comes from; else "". */
const char *budget_memory_limit(const struct plan_request *s, enum tier t);
/* Whether --nvme-max gives more than this machine's drives have free, so that the free space is the limit. */
int budget_is_free_space(const struct plan *p, const struct plan_request *s);
/* The number of ranks that share a node's host memory and drives, where the settings' machine says so; else 1. */
int budget_sharing(const struct plan *p, const struct plan_request *s);

#endif
