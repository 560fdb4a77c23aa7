/* The explanation of where experts are. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_EXPERTS_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_EXPERTS_H

#include "plan/report/explainer.h"

/* Explains sharing experts out to ranks by the bytes that a rank sends with and without it, if ranks share experts or planning chose
 * between the two. */
void explain_shared_experts(struct explainer *x);
/* Tries other tiers for experts, and that of other units. */
enum status explain_experts(struct explainer *x);

#endif
