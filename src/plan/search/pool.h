/* Trials by tile grid, the memory of local search. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_POOL_H
#define LTRAIN_PLAN_SEARCH_POOL_H

#include "plan/search/space.h"
#include "plan/search/tuning.h"

/* Grids that local search may look at: those of added trials; also those beside them; or, of the grids beside them, only those
 * with many row chunks if activations travel (tiles_are_coarse). */
enum pool_grids { POOL_GIVEN_GRIDS, POOL_ANY_GRIDS, POOL_FINE_GRIDS };

struct pool_grid {
    struct strategy fixed;
    int large;           /* programs on this grid are too large to be tried */
    struct search tried; /* search whose candidates are exactly the trials on this grid */
    int room;
};

struct pool {
    struct problem problem;
    struct strategy fixed; /* strategy on the default grid */
    enum pool_grids allowed;
    struct pool_grid grids[POOL_GRIDS];
    int n;
    struct candidate hints[POOL_HINTS]; /* the cheapest trials of a few layers; each strategy has its grid */
    int n_hints;
    double spent, most;                    /* instructions scheduled, and the most that may be */
    int last_level;                        /* last prefetch level that trials look at before FIT_SERIAL */
    char started[DECISIONS_FAMILIES];      /* families that were starts, as a set */
    struct strategy visited[POOL_VISITED]; /* placements whose moves were looked at */
    int n_visited;
    double least; /* price that moves start from: cheaper trials belong to other starts */
};

/* Creates a pool. `p` and `fixed` must agree on mesh and stage; `fixed` is on the default grid. The model and the request's
 * pointers must outlive it. ERR_NOMEM: memory ran out. */
enum status pool_create(const struct problem *p, const struct strategy *fixed, enum pool_grids grids, struct pool **out);
void pool_destroy(struct pool *pool); /* NULL is fine */

/* Adds the trials of a search on a grid: those of all layers as trials, those of a few layers as hints. */
enum status pool_add_search(struct pool *pool, const struct strategy *grid, const struct search *x);
/* Adds a trial of all layers. */
enum status pool_add(struct pool_grid *g, const struct candidate *c);

/* Sets *out to the grid of `like`, ready to judge candidates. A new grid is added if there is room, else *out is NULL. */
enum status pool_open(struct pool *pool, const struct strategy *like, struct pool_grid **out);

/* Counts trials of all layers. */
int pool_trials(const struct pool *pool);
/* Tells whether c was tried on all layers. */
int pool_knows(const struct pool *pool, const struct candidate *c);
/* Returns the lowest price of the trials on a grid that fit; INFINITY: none does. */
double pool_price_on(const struct pool *pool, const struct strategy *grid);
/* Tells whether a trial decides about s (candidate_decides) and looked at no fewer prefetch levels than trials do now. */
int pool_decided(const struct pool *pool, const struct pool_grid *g, const struct strategy *s);

typedef int condition(struct pool *pool, const struct candidate *c);
/* Returns the cheapest trial that fits, costs less than `most` and meets the condition (NULL: any); NULL: there is none. The
 * pointer is valid until a trial is added. */
struct candidate *pool_cheapest(struct pool *pool, double most, condition *holds);
/* Copies the cheapest such trial to *out. Returns 0 if there is none. */
int pool_find(struct pool *pool, double most, condition *holds, struct candidate *out);
/* Copies the next dearer trial after `after` to *out. Returns 0 if there is none. */
int pool_next(const struct pool *pool, const struct candidate *after, struct candidate *out);

/* Forgets trials with other layer inputs. */
void pool_keep_inputs(struct pool *pool, int keep_inputs);
/* Forgets trials on other grids. */
void pool_keep_grid(struct pool *pool, const struct strategy *grid);

#endif
