/* The search for a numerics key: how ranks share a sequence, the ZeRO stage, and the grid of tiles. Private to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_KEY_H
#define LTRAIN_PLAN_SEARCH_KEY_H

#include "plan/search/meshes.h"
#include "plan/search/space.h"

/* A problem whose mesh and ZeRO stage are decided, and its placements as searched. */
struct searched {
    struct problem problem;
    struct strategy fixed, default_grid; /* default_grid: the grid of model, length and mesh, or a finer one in its place */
    int large; /* 1: programs on the default grid are large, so that the search may start from another grid */
    double
        default_slower; /* share of fixed's step by which the default grid was slower in trials, if `fixed` is on another grid; INFINITY: the best placement does not fit there */
    struct search search;
};

/* A search in steps, the functions below in their order. Each step's result depends on its arguments alone, so all ranks find the
 * same. */
struct key_search;

/* Chooses the mesh (meshes.h), if it is open; an open ZeRO stage counts as 3. The pointers' targets must outlive *out. Errors as
 * plan_fixed. */
enum status key_search_start(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int finer,
                             struct key_search **out);
/* Searches placements on the default grid or, if programs are large, on one with larger tiles. The default grid is refined
 * as often as key_search_start's `finer` says (plan_finer_tiles). If nothing fits, other open meshes are searched, too. */
enum status key_search_grid(struct key_search *x);
/* Compares other ZeRO stages, where compute waits: estimates them, and tries those estimated to gain SEARCH_GAIN. A stage wins if
 * it gains as much, messages weighed, or fits where the best one does not. */
enum status key_search_stage(struct key_search *x);
/* Compares other grids of tiles, if they are open: by steps of one size each, on few trials, then by a full search. A grid wins
 * if it gains GRID_GAIN_MEASURED or, on a data sheet's machine, GRID_GAIN_SHEET. */
enum status key_search_tiles(struct key_search *x);
/* Runs local search (local.h) from the best placement, if programs are not too large; on a data sheet's machine it may change the
 * grid, too. */
enum status key_search_local(struct key_search *x);

/* Returns the best key so far, with its placements; x owns it. */
const struct searched *key_search_best(const struct key_search *x);
/* Returns the meshes that were weighed, the chosen one among them; none if the mesh is given. */
const struct meshes *key_search_meshes(const struct key_search *x);
/* Returns the number of trials so far, without the few of each step of key_search_tiles from one grid to the next. */
int key_search_trials(const struct key_search *x);
void key_search_end(struct key_search *x); /* NULL is fine */

#endif
