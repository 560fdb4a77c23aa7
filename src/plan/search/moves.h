/* What local search may try next. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_MOVES_H
#define LTRAIN_PLAN_SEARCH_MOVES_H

#include "plan/search/pool.h"
#include "plan/search/tuning.h"

/* What speaks for a move: the price expected after trials, or its estimate alone, which knows of no stalls. */
enum move_by { MOVE_BY_EXPECTATION, MOVE_BY_ESTIMATE };

/* The cheapest as expected, in that order. */
struct moves {
    struct candidate c[MOVES_AT_ONCE];
    double expected[MOVES_AT_ONCE]; /* price */
    struct pool_grid *grid[MOVES_AT_ONCE];
    int n;
};

/* Adds c if it is expected to be cheap enough. Of similar placements, which differ in how many layers have something nearer, the
 * one that is expected to be the cheapest is enough at a time. */
void moves_offer(struct moves *list, struct pool_grid *g, const struct candidate *c, double price);
/* The same where one of a family is enough, by estimate. */
void moves_offer_family(struct moves *list, struct pool_grid *g, const struct candidate *c);
/* Placements that may be better than `best`: up to MOVE_DISTANCE choices away, on its grid and on those beside it. */
enum status moves_find(struct pool *pool, const struct candidate *best, enum move_by by, struct moves *list);

/* As large a share of the chunks as `like` keeps, as far as the request leaves that open; and the fewest that may be kept. */
int moves_share_kept(const struct pool_grid *g, const struct strategy *like);
int moves_fewest_kept(const struct pool_grid *g);

#endif
