/* Further trials of one placement: other prefetch levels, other depths of drive writes. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_RETRY_H
#define LTRAIN_PLAN_SEARCH_RETRY_H

#include "plan/search/trial.h"

/* A trial from c's first prefetch level (c->first_level) on; if compute waits while drives are written, and the estimate is below
 * `best` seconds, a second one with writes that yield to reads. *c: the cheaper one. */
enum status retry_yielding(const struct trials *t, struct candidate *c, double best);

/* If c takes about `best` seconds or less: also at later prefetch levels (the earliest that fits is mostly the fastest, not
 * always), with writes that yield more, and with parameters on the host; c->retried is set. *c: the cheapest of these, whose
 * classes may be other ones. Adds to *spent the instructions that were scheduled. */
enum status retry_all(const struct trials *t, struct candidate *c, double best, double *spent);

#endif
