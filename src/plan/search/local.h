/* Local search: from the best placement that searches have tried to better ones beside it. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_LOCAL_H
#define LTRAIN_PLAN_SEARCH_LOCAL_H

#include "plan/search/pool.h"

/* From *best, whose search's trials the pool has:
 *
 * 1. If it was tried on a few layers: the pool's hints are tried on all layers, and the cheapest becomes *best. Its excess is
 *    INFINITY if none fits.
 * 2. One placement of each family that may be cheaper, and for which no trial on all layers is evidence, is tried.
 * 3. The moves from *best (moves.h) are tried, those expected to be the cheapest first; the search goes on from each that is
 * cheaper, and ends after LOCAL_MISSES trials in a row that are not. Trials within LOCAL_RETRY_WITHIN of *best are retried
 * (retry.h).
 * 4. Steps 2 and 3 again from the cheapest trials of up to LOCAL_STARTS - 1 other families, and step 3 from *best.
 * 5. Of trials on its grid that are about as cheap, *best is the one that moves least.
 *
 * Layer inputs are those of *best. */
enum status local_search(struct pool *pool, struct candidate *best);

#endif
