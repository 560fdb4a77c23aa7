/* Alternatives to the decisions of a plan of stages. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_STAGES_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_STAGES_H

#include "plan/report/explainer.h"

/* Tries other ZeRO stages, slices, times of messages and tiers. x->s: the request as given. Every alternative is a brief plan of all
 * stages, and so is the plan that their seconds are compared with. ERR_NOMEM. */
enum status explain_stages(struct explainer *x);

#endif
