/* Needs that were measured, for estimators on other grids, of other placements and of other requests. Private to search. */
#ifndef LTRAIN_PLAN_SEARCH_NEEDS_H
#define LTRAIN_PLAN_SEARCH_NEEDS_H

#include "plan/search/measure.h"

/* Measures a program (measure_need), or copies its needs from the memo (memo.h). */
enum status needs_find(const struct subject *of, const struct strategy *s, int duties, struct need *out);

#endif
