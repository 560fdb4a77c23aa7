/* What is said of changes. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_TEXT_H
#define LTRAIN_PLAN_REPORT_ADVISE_TEXT_H

#include "plan/report/advise.h"

/* The three cheapest, two lines each: what to type, what it gives. */
void advise_print(const struct plan *p, const struct advice *advice, FILE *f);

#endif
