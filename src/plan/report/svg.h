/* A picture of a step. */
#ifndef LTRAIN_PLAN_REPORT_SVG_H
#define LTRAIN_PLAN_REPORT_SVG_H

#include "plan/plan.h"

/* Draws lanes and memory of the first micro-batch's step as an SVG picture of at most some 200 KB. ERR_IO, ERR_NOMEM. */
enum status plan_write_svg(const struct plan *p, const struct model *m, FILE *f);

#endif
