/* A mesh's problem, the grid that its search starts from, and that search. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_START_H
#define LTRAIN_PLAN_SEARCH_START_H

#include "plan/search/numerics.h"
#include "plan/search/search.h"

/* What all starts of a plan have in common; borrowed. */
struct start {
    const struct model *m;
    const int64_t *limit;
    int finer; /* how many times the default grid is; below 0: coarser */
};

/* Searches on the grid given. NULL: on the one to start from, or if nothing fits there on the default one, the `finer`-th finer. */
enum status start_create(const struct start *from, const struct plan_request *s, const struct strategy *grid,
                         const struct search_lead *lead, struct numerics **out);
void start_destroy(struct numerics *v); /* NULL is fine */
/* The best placement's trial; of a single one, which the search does not try, that is made here. */
enum status start_best(const struct numerics *v, struct candidate *out);
/* The share of the step that another grid is to gain. */
double start_grid_gain(const struct plan_request *s);

#endif
