/* Needs that were measured, for estimators on other grids and of other placements. Private to search. */
#ifndef LTRAIN_PLAN_SEARCH_NEEDS_H
#define LTRAIN_PLAN_SEARCH_NEEDS_H

#include "plan/search/measure.h"

/* Needs of one model's programs, by subject, strategy, duties and costs. Several threads may use it. */
struct needs;

enum status needs_create(struct needs **out);
void needs_destroy(struct needs *x); /* NULL is fine */

/* Measures a program (measure_need), or copies its needs if they are known. */
enum status needs_find(struct needs *x, const struct subject *of, const struct strategy *s, int duties, struct need *out);

#endif
