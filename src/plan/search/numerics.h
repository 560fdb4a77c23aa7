/* What changes rounding and is left open all the same: how ranks share a sequence, the ZeRO stage, and the grid of tiles. Private
 * to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_NUMERICS_H
#define LTRAIN_PLAN_SEARCH_NUMERICS_H

#include "plan/search/meshes.h"
#include "plan/search/space.h"

/* A problem whose mesh and ZeRO stage are decided, and its placements as searched. */
struct numerics {
    struct problem problem;
    struct strategy fixed, default_grid; /* default_grid: on the grid of model, length and mesh, or a finer one in its place */
    int large;                           /* programs on the default grid are: another one was started from, or could have been */
    double default_slower; /* than fixed, by this share of its step, if that has another grid, both as tried; INFINITY: the
                            * best placement does not fit there */
    struct search search;
};

/* the best numerics so far. Its steps, in the order of the functions below, are functions of their arguments, the same on all
 * ranks. */
struct numerics_search;

/* The mesh (meshes.h), where the request leaves it open, at ZeRO 3, where it leaves that open. What the arguments point to must outlive
 * it. Errors as plan_fixed. */
enum status numerics_start(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int finer,
                           struct numerics_search **out);
/* Placements on the default grid or, for large programs, one with larger tiles. The default grid is the `finer`-th one beyond itself
 * (plan_finer_tiles; 0: itself). If nothing fits, other meshes that are open are searched, too. */
enum status numerics_grid(struct numerics_search *n);
/* Other ZeRO stages, where compute waits: estimated, and tried if they are estimated to gain SEARCH_GAIN. One takes the best one's place
 * if it gains as much, messages weighed, or fits where that does not. */
enum status numerics_stage(struct numerics_search *n);
/* Another grid of tiles, where they are open and it gains GRID_GAIN_MEASURED or, on a data sheet's machine, GRID_GAIN_SHEET:
 * found by steps of one size each, on few trials, then searched in full. */
enum status numerics_tiles(struct numerics_search *n);
/* Local search (local.h) from there, if programs are not too large: on a data sheet's machine to another grid, too. */
enum status numerics_local(struct numerics_search *n);

/* What was found; n owns it. */
const struct numerics *numerics_best(const struct numerics_search *n);
/* The meshes that were weighed, the chosen one among them; none if it is given. */
const struct meshes *numerics_meshes(const struct numerics_search *n);
/* Trials so far, those of single steps between grids not counted. */
int numerics_trials(const struct numerics_search *n);
void numerics_end(struct numerics_search *n); /* NULL is fine */

#endif
