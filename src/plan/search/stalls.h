/* Stalls that trials show, and the seconds expected of other placements. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_STALLS_H
#define LTRAIN_PLAN_SEARCH_STALLS_H

#include "plan/search/space.h"

/* Returns the seconds that c is expected to take after the first `tried` of x and the trials of x->known: its estimate, and
 * stalls in proportion to its traffic. */
double stalls_expect(const struct search *x, int tried, const struct candidate *c);
/* Returns the estimate alone, if no trial is of c's family (decisions_same_family); else INFINITY. */
double stalls_untried_family(const struct search *x, int tried, const struct candidate *c);

typedef int resemblance(const struct strategy *tried, const struct strategy *c);
/* Returns the amount by which the price of c ought to exceed its estimate, judged by one trial: in proportion to traffic. If c
 * has less traffic, in proportion to its square, as lanes that hold compute up then catch up. */
double stalls_scaled(const struct candidate *tried, const struct candidate *c);
/* Returns the least stalls_scaled over the trials of x that are like c; INFINITY: there are none. */
double stalls_of(const struct search *x, const struct candidate *c, resemblance *like);

#endif
