/* Around the fastest placement that was tried: activations split by row chunks. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_SPLIT_H
#define LTRAIN_PLAN_SEARCH_SPLIT_H

#include "plan/search/trial.h"

/* Where compute waits: finds placements with some row chunks of all layers' activations on the device, which leaves less to be
 * written at any time of the pass. The best one comes first of x, whose candidates have room for one more. */
enum status search_split(const struct trials *t, struct search *x);

#endif
