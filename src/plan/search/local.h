/* Local search: from the best placement that searches have tried to better ones beside it. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_LOCAL_H
#define LTRAIN_PLAN_SEARCH_LOCAL_H

#include "plan/search/pool.h"

/* Searches from *best, the result of searches whose trials are in the pool:
 *
 * 1. If *best was tried on a few layers: the pool's hints are tried on all layers, and the cheapest becomes *best. Its excess is
 * INFINITY if none fits.
 *
 * 2. One placement of each family that may be cheaper, and that no trial on all layers is evidence for, is tried.
 *
 * 3. The moves from *best (moves.h) are tried, those expected to be the cheapest first. The search goes on from each that is
 * cheaper, and ends after LOCAL_MISSES trials in a row that are not. Trials within LOCAL_RETRY_WITHIN of *best are retried
 * (retry.h).
 *
 * 4. Steps 2 and 3 again from the cheapest trials of up to LOCAL_STARTS - 1 other families, and step 3 from *best.
 *
 * 5. *best becomes the trial on its grid that moves least among those about as cheap.
 *
 * Layer inputs stay those of *best. */
enum status local_search(struct pool *pool, struct candidate *best);

#endif
