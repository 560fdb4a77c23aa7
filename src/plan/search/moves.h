/* Moves that local search tries next. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_MOVES_H
#define LTRAIN_PLAN_SEARCH_MOVES_H

#include "plan/search/pool.h"
#include "plan/search/tuning.h"

/* Evidence for a move: the price expected after trials, or its estimate alone, which knows of no stalls. */
enum move_by { MOVE_BY_EXPECTATION, MOVE_BY_ESTIMATE };

/* The moves with the lowest expected prices, in that order. */
struct moves {
    struct candidate c[MOVES_AT_ONCE];
    double expected[MOVES_AT_ONCE]; /* price */
    struct pool_grid *grid[MOVES_AT_ONCE];
    int n;
};

/* Adds c if its price is low enough. Of placements that differ only in how many layers have something nearer, the cheapest alone
 * is listed. */
void moves_offer(struct moves *list, struct pool_grid *g, const struct candidate *c, double price);
/* Adds c by its estimate; of placements of one family, only the best is listed. */
void moves_offer_family(struct moves *list, struct pool_grid *g, const struct candidate *c);
/* Lists placements that may be better than `best`: up to MOVE_DISTANCE choices away, on its grid and on those beside it. */
enum status moves_find(struct pool *pool, const struct candidate *best, enum move_by by, struct moves *list);

/* Returns the number of chunks that is as large a share as `like` keeps, within the request's limits. The second function returns
 * the fewest that may be kept. */
int moves_share_kept(const struct pool_grid *g, const struct strategy *like);
int moves_fewest_kept(const struct pool_grid *g);

#endif
