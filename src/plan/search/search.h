/* The best placements on one grid of tiles: all of them estimated, the most promising tried. */
#ifndef LTRAIN_PLAN_SEARCH_SEARCH_H
#define LTRAIN_PLAN_SEARCH_SEARCH_H

#include "plan/search/space.h"

/* Lists, estimates and tries every placement that the settings leave open, for the mesh and tiles of `fixed`; a single placement
 * is neither estimated nor tried. Keeps fewer layer inputs than `fixed` if the settings allow, memory limits the best placement,
 * and fewer inputs are faster. */
enum status search_create(const struct problem *p, const struct strategy *fixed, struct search *out);

/* A search's goal and evidence. */
struct search_lead {
    const struct candidate *beat; /* the best so far; NULL: none */
    double gain;                  /* gain asked for, as a share of beat's step */
    const struct search *
        known; /* another grid's search, whose trials are evidence if trials here are of all layers; beat's placement is then tried first; NULL: none */
    const struct candidate *first; /* placement already found on this grid, tried first and unchanged; NULL: none */
    int brief;                     /* few placements are tried at any effort (start.h) */
};
/* Searches as search_create, but tries nothing (out->n_tried = 0) unless a placement is estimated to gain lead->gain, or
 * lead->beat does not fit. Below a gain of SEARCH_GAIN few are tried, with the layer inputs of `fixed`. */
enum status search_to_beat(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead,
                           struct search *out);
/* Finds the best of at most SELECT_BRIEF trials (out->tried): lead->beat's placement and those that ought to be faster, given
 * lead->known. Adds the instructions scheduled to *spent. */
enum status search_briefly(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, double *spent,
                           struct candidate *out);

/* Searches as search_to_beat, but tries at most SELECT_BRIEF placements and nothing around them. */
enum status search_few(const struct problem *p, const struct strategy *fixed, const struct search_lead *lead, struct search *out);

/* Estimates the number of instructions of a step's program on the grid of `fixed`. */
enum status search_instrs(const struct problem *p, const struct strategy *fixed, double *instrs);
/* Estimates, without trials, the least seconds of placements that ought to fit on the grid of `fixed`; INFINITY: none. */
enum status search_estimate(const struct problem *p, const struct strategy *fixed, double *least);

#endif
