/* One placement on the virtual clock. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_TRIAL_H
#define LTRAIN_PLAN_SEARCH_TRIAL_H

#include "plan/search/space.h"

/* Arguments that trials share. */
struct trials {
    const struct problem *problem;
    const struct search *search;
    double slack;   /* slack of packing, as a share */
    int last_level; /* the last prefetch level to look at (prefetch.h); 0: FIT_SERIAL */
};

/* Returns the approximate number of instructions that a trial of c schedules. */
double trial_instrs(const struct trials *x, const struct candidate *c);
/* Schedules c, at the given prefetch level or a later one, with all layers or as two models of a few layers, and sets the seconds
 * and bytes of the whole model. At FIT_SERIAL the seconds are the estimate. */
enum status trial_run(const struct trials *x, struct candidate *c, int level);

/* Finds the bytes that a placement's first program of all layers needs in the serial order. */
enum status trial_bytes(const struct problem *p, const struct strategy *s, int64_t out[TIERS]);

/* A step of several micro-batches. */
struct step_trial {
    double seconds;  /* seconds of the whole step */
    double messages; /* share of the last micro-batch that messages between all ranks take */
    int fits;
};
/* Schedules the programs of the first, of further and of the last micro-batch of c, which was tried. */
enum status trial_step(const struct trials *x, const struct candidate *c, struct step_trial *out);

#endif
