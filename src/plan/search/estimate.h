/* Estimates of placements, from differences between programs of a few layers. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_ESTIMATE_H
#define LTRAIN_PLAN_SEARCH_ESTIMATE_H

#include "plan/search/candidate.h"
#include "plan/search/options.h"
#include "plan/search/problem.h"

struct estimator;

/* Lowers and measures programs of a few layers, each with another option of a single class. p must outlive *out. Options that lie
 * farther away than they have to are left out where the memory nearer by is ample (nearer.c). ERR_NOMEM: memory ran out. */
enum status estimator_create(const struct problem *p, const struct options *o, const struct strategy *fixed,
                             struct estimator **out);
/* Measures all options. */
enum status estimator_measure(const struct problem *p, const struct options *o, const struct strategy *fixed,
                              struct estimator **out);
/* Makes estimator_judge move placements to the options that are listed. */
void estimator_bring_nearer(struct estimator *e);
/* Sets the approximate number of instructions of a whole step's program, without an estimator. */
enum status estimator_count(const struct problem *p, const struct options *o, const struct strategy *fixed, double *instrs);
void estimator_destroy(struct estimator *e); /* NULL is fine */
/* Measures the effect of some row chunks on the device: from then on estimator_judge takes such placements, too. */
enum status estimator_split(struct estimator *e);

/* Sets the estimated fields of c from c->strategy: a placement of the options, with any number of kept chunks from the fewest to the
 * most. */
void estimator_judge(const struct estimator *e, struct candidate *c);
const struct options *estimator_options(const struct estimator *e);
/* Sets the approximate number of instructions of a whole step's program and of one layer's part. */
void estimator_instrs(const struct estimator *e, double *all, double *layer);

#endif
