/* A mesh's problem, the grid that its search starts from, and that search. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_START_H
#define LTRAIN_PLAN_SEARCH_START_H

#include "plan/search/key.h"
#include "plan/search/search.h"

/* Arguments that all starts of a plan share; borrowed. */
struct start {
    const struct model *m;
    const int64_t *limit;
    int finer; /* steps by which the default grid is refined; below 0: coarsened */
};

/* Searches the given grid. If `grid` is NULL: searches the grid to start from or, if nothing fits there, the default grid,
 * refined `finer` times. */
enum status start_create(const struct start *from, const struct plan_request *s, const struct strategy *grid,
                         const struct search_lead *lead, struct searched **out);
void start_destroy(struct searched *v); /* NULL is fine */
/* Returns the best placement's trial; a single placement, which the search does not try, is tried here. */
enum status start_best(const struct searched *v, struct candidate *out);
/* Returns the share of the step that another grid must gain. */
double start_grid_gain(const struct plan_request *s);

#endif
