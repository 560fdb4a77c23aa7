/* Choice and order of the placements that are tried. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SELECT_H
#define LTRAIN_PLAN_SEARCH_SELECT_H

#include "plan/search/space.h"

/* Tries candidates in order of expected seconds (stalls.h), until none ought to be faster than the best one or SEARCH_INSTRS
 * instructions have been scheduled, and sorts them. */
enum status select_fastest(const struct problem *p, struct search *x);

/* Tries the first one alone, from prefetch level 0 on and with the depth of drive writes that it has. */
enum status select_first(const struct problem *p, struct search *x);

/* Tries the smallest ones in the serial order until one fits, and sorts them: seconds mean nothing. */
enum status select_smallest(const struct problem *p, struct search *x);

#endif
