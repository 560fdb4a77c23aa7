/* Placements that need the least memory, or ought to be fast, from few trials. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SMALLEST_H
#define LTRAIN_PLAN_SEARCH_SMALLEST_H

#include "plan/search/candidate.h"
#include "plan/search/problem.h"

/* The placement that needs the least share of the budgets; out->excess <= 1: something fits. Fewer layer inputs are kept than
 * `fixed` says where the settings leave that open and memory is short. */
enum status search_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* The placement that is estimated to need the least share of the budgets: nothing is tried. */
enum status search_least(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* The best of a few: tried in order of estimate and `rate` seconds of stalls for every second of traffic, for PROMISING_INSTRS
 * instructions. Candidates that ought not to fit are not tried: unless out->tried and out->excess <= 1, something else may fit.
 */
enum status search_promising(const struct problem *p, const struct strategy *fixed, double rate, struct candidate *out);

#endif
