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
    const struct search *known; /* while trials run: search of another grid whose trials are evidence, too; NULL: none */
    int given;                  /* the first one is tried in any case: another grid's best placement, or one found on this grid */
    int brief;                  /* few are tried, and nothing around them */
    double spent;               /* instructions scheduled while trying */
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
/* Keeps as many more chunks as ought to fit, up to `high`. */
void search_keep_most(const struct search *x, int high, struct candidate *c);

/* Keeps the next fewer layer inputs, if the settings leave that open and the model has as many layers. Returns 0 if there are
 * none. */
int search_fewer_inputs(const struct problem *p, struct strategy *out);
/* Tells whether no number of inputs will fit: the next step gains half of the last one, so all of them gain at most as much. */
int search_is_hopeless(double excess, double gained);

#endif
