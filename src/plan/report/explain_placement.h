/* Decisions on tiers, and on values that are kept, recomputed and written. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_PLACEMENT_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_PLACEMENT_H

#include "plan/report/explainer.h"

enum status explain_placement(struct explainer *x);

#endif
