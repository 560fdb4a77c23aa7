/* All placements that settings leave open on one grid of tiles, and which of them were tried. */
#ifndef LTRAIN_PLAN_SEARCH_SPACE_H
#define LTRAIN_PLAN_SEARCH_SPACE_H

#include "plan/search/estimate.h"

/* Room for candidates that search_put adds. */
enum { SEARCH_PUT = 4 };

struct search {
    struct candidate *candidates; /* first the trials that fit by time, then the other trials, then the rest by estimate */
    int n, n_tried;
    int all_layers;             /* programs are small enough to be tried with all layers */
    double beat;                /* seconds of another grid's best that must be beaten; INFINITY: none */
    const struct search *known; /* set while trials run: another grid's search, whose trials are evidence, too; NULL: none */
    /* 1: the first candidate is tried in any case: another grid's best placement, or a placement found on this grid */
    int given;
    int brief;                   /* 1: few candidates are tried, and nothing around them */
    double spent;                /* instructions scheduled while trying */
    struct estimator *estimator; /* estimator of this grid; NULL: a single placement */
};

/* Lists all placements on the grid of `fixed`; estimates them if there are several or if `always`. */
enum status search_list(const struct problem *p, const struct strategy *fixed, int always, struct search *out);
void search_destroy(struct search *s);

/* Tells whether programs are small enough to be tried with all layers. */
int search_is_small(const struct estimator *e);
/* Puts a candidate tried on any grid among the trials; there is room for SEARCH_PUT of them. */
void search_put(struct search *x, int at, const struct candidate *c);
/* Tells whether a trial of x decides about s (candidate_decides). */
int search_decided(const struct search *x, const struct strategy *s);
/* Raises the number of kept chunks of c to the most, up to `high`, that ought to fit. */
void search_keep_most(const struct search *x, int high, struct candidate *c);

/* Lowers the number of kept layer inputs by one step, if the settings leave it open and the model has enough layers. Returns 0 if
 * there is no such step. */
int search_fewer_inputs(const struct problem *p, struct strategy *out);
/* Tells whether no number of kept inputs will fit: each further step gains half of the last one, so all together gain at most as
 * much. */
int search_is_hopeless(double excess, double gained);

#endif
