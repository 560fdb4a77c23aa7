/* Better placements than the best that searches have tried: beside it, and beside those of other families. Private to src/plan.
 */
#ifndef LTRAIN_PLAN_CLIMB_H
#define LTRAIN_PLAN_CLIMB_H

#include "plan/search.h"

/* Trials by tile grid. */
struct climb;

/* For settings whose mesh and stage are decided, as `fixed` has them. Other grids are looked at if `tiles` is not 0. m, limit and
 * what the settings point to must outlive it. ERR_NOMEM. */
enum status climb_create(const struct model *m, const struct settings *s, const struct strategy *fixed,
                         const struct cost_model *cost, const int64_t limit[TIERS], int tiles, struct climb **out);
void climb_destroy(struct climb *c); /* NULL is fine */

/* Adds what a search on a grid has tried. */
enum status climb_know(struct climb *c, const struct strategy *grid, const struct search *x);

/* What differs from the best in a class or two, or in one size of its grid and a class, is tried as long as that is expected to
 * be faster, or until many in a row were not: where one is, from there on. Then the same from the best of the next families that
 * were tried and are not much slower. All placements have the layer inputs that *best has. */
enum status climb_run(struct climb *c, struct candidate *best);

/* The lowest price (search_cost) of what was tried on a grid and fits; INFINITY: nothing does. */
double climb_price_on(const struct climb *c, const struct strategy *grid);

#endif
