/* What trials show of stalls, and what other placements are expected to take. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_STALLS_H
#define LTRAIN_PLAN_SEARCH_STALLS_H

#include "plan/search/space.h"

/* Seconds that c is expected to take after the first `tried` of x and the trials of x->known: its estimate, and stalls in
 * proportion to its traffic. */
double stalls_expect(const struct search *x, int tried, const struct candidate *c);
/* The estimate alone, if no trial is of c's family (decisions_same_family); else INFINITY. */
double stalls_untried_family(const struct search *x, int tried, const struct candidate *c);

typedef int resemblance(const struct strategy *tried, const struct strategy *c);
/* By how much the price of c is to exceed its estimate, as one that was tried shows: in proportion to traffic; to the square of
 * less traffic, as lanes that hold compute up have time to catch up then. */
double stalls_scaled(const struct candidate *tried, const struct candidate *c);
/* The least of that over the trials of x that are like c; INFINITY: there are none. */
double stalls_of(const struct search *x, const struct candidate *c, resemblance *like);

#endif
