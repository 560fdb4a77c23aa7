/* Advice in words. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_TEXT_H
#define LTRAIN_PLAN_REPORT_ADVISE_TEXT_H

#include "plan/report/advise.h"

/* The ADVICE_PRINTED cheapest changes, two lines for each: what to type, and what it gives. */
void advise_print(const struct plan *p, const struct advice *advice, FILE *f);

#endif
