/* Further trials of one placement: other prefetch levels, other depths of drive writes. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_RETRY_H
#define LTRAIN_PLAN_SEARCH_RETRY_H

#include "plan/search/trial.h"

/* Tries c from its first prefetch level (c->first_level) on. If compute waits for drive writes and the estimate is below `best`
 * seconds, tries it again with writes that yield to reads. *c: the cheaper one. */
enum status retry_yielding(const struct trials *t, struct candidate *c, double best);

/* Tries c, if it takes about `best` seconds or less, at later prefetch levels, too (the earliest that fits is mostly the fastest,
 * not always), with writes that yield more, and with parameters on the host. Sets c->retried. *c: the cheapest, whose classes may
 * differ. Adds the instructions scheduled to *spent. */
enum status retry_all(const struct trials *t, struct candidate *c, double best, double *spent);

#endif
