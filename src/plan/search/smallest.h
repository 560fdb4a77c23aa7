/* Placements that need the least memory, or ought to be fast, from few trials. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SMALLEST_H
#define LTRAIN_PLAN_SEARCH_SMALLEST_H

#include "plan/search/candidate.h"
#include "plan/search/problem.h"

/* Finds the placement that needs the least share of the budgets; if its excess is at most 1, something fits. Keeps fewer layer
 * inputs than `fixed` if the settings allow it and memory is short. */
enum status search_smallest(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* Finds the placement that is estimated to need the least share of the budgets; tries nothing. */
enum status search_least(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* Gives every choice that p leaves open the value farthest from the device, which is mostly the smallest placement. */
void search_empty_device(struct problem *p);

/* Estimates the least need of the placements that search_empty_device leaves. */
enum status search_emptied(const struct problem *p, const struct strategy *fixed, struct candidate *out);

/* Finds the best of a few placements, tried in order of estimate plus `rate` seconds of stalls for every second of traffic,
 * within PROMISING_INSTRS instructions. Placements that ought not to fit are left out, so something may fit even if *out does
 * not. */
enum status search_promising(const struct problem *p, const struct strategy *fixed, double rate, struct candidate *out);

#endif
