/* Budgets that a plan has to fit: the flags that set them, and the ranks that share them. */
#ifndef LTRAIN_PLAN_REPORT_BUDGET_H
#define LTRAIN_PLAN_REPORT_BUDGET_H

#include "plan/plan.h"

/* The flag that sets a tier's budget. */
extern const char *const budget_flag[TIERS];
/* Returns the flag that explains a tier's budget: "--nvme none" for drives that the settings rule out, else budget_flag. */
const char *budget_flag_given(const struct plan_request *s, enum tier t);
/* Returns the text on the limit of this machine's memory (settings->memory_limit), if the tier's budget comes from it; else "". */
const char *budget_memory_limit(const struct plan_request *s, enum tier t);
/* Tells whether --nvme-max gives more than this machine's drives have free, so that the free space is the limit. */
int budget_is_free_space(const struct plan *p, const struct plan_request *s);
/* Returns the number of ranks that share a node's host memory and drives, if the settings name a machine; else 1. */
int budget_sharing(const struct plan *p, const struct plan_request *s);

#endif
