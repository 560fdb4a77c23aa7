/* The explanation of where experts are. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_EXPERTS_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_EXPERTS_H

#include "plan/report/explainer.h"

/* Says what a rank sends if ranks share experts out, and if they do not, where planning chose between the two or they do. */
void explain_shared_experts(struct explainer *x);

#endif
