/* What changes rounding and is left open all the same: how ranks share a sequence, the ZeRO stage, and the grid of tiles. Private
 * to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_NUMERICS_H
#define LTRAIN_PLAN_SEARCH_NUMERICS_H

#include "plan/search/space.h"

/* A problem whose mesh and ZeRO stage are decided, and its placements as searched. */
struct variant {
    struct problem problem;
    struct strategy fixed, usual; /* usual: on the grid of model, length and mesh, or a finer one in its place */
    int large;                    /* programs on the usual grid are: another one was started from, or could have been */
    double usual_slower;          /* than fixed, by this share of its step, if that has another grid, both as tried; INFINITY: the
                                   * best placement does not fit there */
    struct search search;
};

/* The variant to plan: what mesh.c's rule takes with ZeRO 3 (where the settings leave that open), unless another one is
 * reckoned to be faster by more than a percent, messages weighed, or fits where that does not. Others are estimated where
 * compute waits, and tried where the estimate is that much faster. Then another grid of tiles, where they are open and it is
 * faster by 3% of measured figures or 0.3% of a data sheet's: found by steps of one size each, on few trials, then searched in
 * full. Searches of large programs start on a grid with larger tiles. Programs that are not large climb from there (climb.h): on
 * a data sheet's machine to another grid, too, if that is cheaper by more than a two-thousandth. The usual grid is the `finer`-th
 * one beyond it (plan_finer_tiles; 0: itself). A function of its arguments, the same on all ranks. The caller destroys it. Errors
 * as plan_fixed.
 */
enum status variant_choose(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int finer,
                           struct variant **out);
/* What another grid has to gain, as a share of the step. */
double variant_grid_gain(const struct plan_request *s);
void variant_destroy(struct variant *v); /* NULL is fine */

#endif
