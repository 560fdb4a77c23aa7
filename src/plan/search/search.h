/* The best placements on one grid of tiles: all of them estimated, the most promising tried. */
#ifndef LTRAIN_PLAN_SEARCH_SEARCH_H
#define LTRAIN_PLAN_SEARCH_SEARCH_H

#include "plan/search/space.h"

/* Lists, estimates and tries every placement that the settings leave open, for the mesh and tiles of `fixed`; a single placement
 * is neither estimated nor tried. Fewer layer inputs are kept than `fixed` says where the settings leave that open, memory limits
 * the best placement and it pays. */
enum status search_create(const struct problem *p, const struct strategy *fixed, struct search *out);

/* What a search is to be better than, and goes on from. */
struct search_lead {
    const struct candidate *beat;  /* the best so far; NULL: none */
    double gain;                   /* what is to be gained, as a share of its step */
    const struct search *known;    /* the search of another grid whose trials are evidence here, too, if trials here are of all
                                    * layers: `beat`'s placement is tried first; or NULL */
    const struct candidate *first; /* found on this grid already: tried first, as it is; or NULL */
    int brief;                     /* few are tried at any effort (start.h) */
};
/* The same, but nothing is tried (out->n_tried = 0) unless a placement is estimated to gain lead->gain, or lead->beat does not
 * fit. Below a gain of SEARCH_GAIN few are tried, with the layer inputs of `fixed`. */
enum status search_to_beat(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead,
                           struct search *out);
/* The best one (out->tried) of SELECT_BRIEF at most: lead->beat's placement and what ought to be faster, given lead->known. Adds
 * to *spent the instructions that were scheduled. */
enum status search_briefly(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, double *spent,
                           struct candidate *out);

/* As search_to_beat, but SELECT_BRIEF are tried at most, and nothing around them. */
enum status search_few(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, struct search *out);

/* Nothing is tried: instructions of a step's program on the grid of `fixed`, about, and the least estimated seconds of what ought
 * to fit (INFINITY: nothing). */
enum status search_estimate(const struct problem *p, const struct strategy *fixed, double *instrs, double *least);

#endif
