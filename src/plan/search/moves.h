/* What a climb may try next. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_MOVES_H
#define LTRAIN_PLAN_SEARCH_MOVES_H

#include "plan/search/pool.h"

#include "plan/search/tuning.h"

/* What speaks for a move: the price expected after trials, or its estimate alone, which knows of no stalls. */
enum move_by { MOVE_BY_EXPECTATION, MOVE_BY_ESTIMATE };

/* The cheapest as expected, in that order. */
struct neighbours {
    struct candidate c[MOVES_AT_ONCE];
    double expected[MOVES_AT_ONCE];
    struct grid *grid[MOVES_AT_ONCE];
    int n;
};

/* Of similar ones, which differ in how many layers have something nearer, one is enough at a time: the one that is expected to be
 * the cheapest. */
void neighbours_offer(struct neighbours *list, struct grid *g, const struct candidate *c, double price);
/* The same where one of a family is enough, by estimate. */
void neighbours_offer_family(struct neighbours *list, struct grid *g, const struct candidate *c);
/* Those beside `best`, on its grid and on those beside it, that may be better. */
enum status neighbours_find(struct climb *cl, const struct candidate *best, enum move_by by, struct neighbours *list);

/* As large a share of the chunks as `like` keeps, as far as the settings leave that open; and the fewest that may be kept. */
int climb_share_kept(const struct grid *g, const struct strategy *like);
int climb_fewest_kept(const struct grid *g);

#endif
