/* Printing of advice. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_TEXT_H
#define LTRAIN_PLAN_REPORT_ADVISE_TEXT_H

#include "plan/report/advise.h"

/* Prints the ADVICE_PRINTED cheapest changes, two lines for each: the flags to type, and their effect. */
void advise_print(const struct plan *p, const struct advice *advice, FILE *f);

#endif
