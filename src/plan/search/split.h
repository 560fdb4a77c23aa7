/* Around the fastest placement that was tried: activations split by row chunks. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SPLIT_H
#define LTRAIN_PLAN_SEARCH_SPLIT_H

#include "plan/search/trial.h"

/* Finds, if compute waits, placements with some row chunks of all layers' activations on the device, so that less is written at
 * any time of the pass. Puts the best one first in x, whose candidates need room for one more. */
enum status search_split(const struct trials *t, struct search *x);

#endif
