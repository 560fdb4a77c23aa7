/* Choice and order of the placements that are tried. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SELECT_H
#define LTRAIN_PLAN_SEARCH_SELECT_H

#include "plan/search/space.h"

/* Tries candidates in order of expected seconds (stalls.h), until none ought to be faster than the best one or SEARCH_INSTRS
 * instructions have been scheduled, and sorts them. */
enum status select_fastest(const struct problem *p, struct search *x);

/* Tries the first candidate alone, from prefetch level 0 on and with its own depth of drive writes. */
enum status select_first(const struct problem *p, struct search *x);

/* Tries the smallest candidates without prefetches or overlap until one fits, and sorts them. Seconds mean nothing afterwards. */
enum status select_smallest(const struct problem *p, struct search *x);

#endif
