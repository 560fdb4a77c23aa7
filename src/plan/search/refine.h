/* Around the fastest placement that was tried: other numbers of kept chunks, and less traffic at almost its speed. Private to the
 * search. */
#ifndef LTRAIN_PLAN_SEARCH_REFINE_H
#define LTRAIN_PLAN_SEARCH_REFINE_H

#include "plan/search/trial.h"

/* Finds numbers of kept chunks between tried ones and, within a margin of the lowest price, the placement that moves least. Puts
 * that first in x, whose candidates need room for REFINE_MOST more. */
enum status search_refine(const struct trials *t, struct search *x);

#endif
