/* Classes in two tiers: where a placement leaves memory, some layers have one of its classes nearer. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_PROMOTE_H
#define LTRAIN_PLAN_SEARCH_PROMOTE_H

#include "plan/search/trial.h"

/* Tries classes in two tiers and puts the best candidate first in x. The candidates need room for PROMOTE_MOST more. */
enum status search_promote(const struct trials *t, struct search *x);

#endif
