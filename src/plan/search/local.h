/* Better placements than the best that searches have tried: beside it, and beside those of other families. Private to src/plan.
 */
#ifndef LTRAIN_PLAN_SEARCH_LOCAL_H
#define LTRAIN_PLAN_SEARCH_LOCAL_H

#include "plan/search/space.h"

/* Trials by tile grid. */
struct climb;

/* Those that trials were added of; others beside them, too; of these only those of many row chunks, where activations travel
 * (tiles_are_coarse). */
enum climb_grids { CLIMB_GIVEN_GRIDS, CLIMB_ANY_GRIDS, CLIMB_FINE_GRIDS };

/* For settings whose mesh and stage are decided, as `fixed`, on the usual grid, has them. Looks at
 * the grids named. The model and what the request points to must outlive it. ERR_NOMEM. */
enum status climb_create(const struct problem *p, const struct strategy *fixed, enum climb_grids grids, struct climb **out);
void climb_destroy(struct climb *c); /* NULL is fine */

/* Adds what a search on a grid has tried. */
enum status climb_add_trials(struct climb *c, const struct strategy *grid, const struct search *x);

/* Tries whole what promised the most on a few layers, and one of each family that may be faster and of which no whole trial
 * tells. Then the neighbours of the cheapest (at most two choices differ, on its grid or on one beside it), those that are
 * expected to be the cheapest first, and goes on from each that is cheaper, until many in a row are not. Then the same from the
 * cheapest trials of a few other families, and from the best one again. *best: the cheapest of all with the layer inputs that it
 * had; its excess is INFINITY if it was tried on a few layers and nothing fits whole. */
enum status climb_run(struct climb *c, struct candidate *best);
/* Trials of all layers that it knows of. */
int climb_trials(const struct climb *c);
/* The next trial by price. Returns 0 if there is none. */
int climb_next(struct climb *c, const struct candidate *after, struct candidate *out);

/* Whether c was tried on all layers. */
int climb_knows(const struct climb *cl, const struct candidate *c);
/* The lowest price (candidate_price) of what was tried on a grid and fits; INFINITY: nothing does. */
double climb_price_on(const struct climb *c, const struct strategy *grid);

#endif
