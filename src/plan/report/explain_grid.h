/* Decisions on tiles, the ZeRO stage and the mesh. Private to explain.c. */
#ifndef LTRAIN_PLAN_REPORT_EXPLAIN_GRID_H
#define LTRAIN_PLAN_REPORT_EXPLAIN_GRID_H

#include "plan/report/explainer.h"

enum status explain_grid(struct explainer *x);

#endif
