/* Trials by tile grid: what local search knows. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_POOL_H
#define LTRAIN_PLAN_SEARCH_POOL_H

#include "plan/search/space.h"
#include "plan/search/tuning.h"

/* Which grids local search may look at: those that trials were added of; others beside them, too; of these only those of many row
 * chunks, where activations travel (tiles_are_coarse). */
enum pool_grids { POOL_GIVEN_GRIDS, POOL_ANY_GRIDS, POOL_FINE_GRIDS };

struct pool_grid {
    struct strategy fixed;
    int large;           /* its programs are not tried */
    struct search tried; /* its candidates are the trials alone */
    int room;
};

struct pool {
    struct problem problem;
    struct strategy fixed; /* on the default grid */
    enum pool_grids allowed;
    struct pool_grid grids[POOL_GRIDS];
    int n;
    struct candidate hints[POOL_HINTS]; /* the cheapest trials of a few layers; the strategies say of which grid */
    int n_hints;
    double spent, most;                    /* instructions scheduled, and to be scheduled at most */
    int last_level;                        /* the last prefetch level that trials look at, before FIT_SERIAL */
    char started[DECISIONS_FAMILIES];      /* the set of families that were starts */
    struct strategy visited[POOL_VISITED]; /* placements whose moves were looked at */
    int n_visited;
    double least; /* the price that moves start from: cheaper trials belong to other starts */
};

/* For a problem whose mesh and stage are decided, as `fixed`, on the default grid, has them. The model and what the request
 * points to must outlive it. ERR_NOMEM. */
enum status pool_create(const struct problem *p, const struct strategy *fixed, enum pool_grids grids, struct pool **out);
void pool_destroy(struct pool *pool); /* NULL is fine */

/* Adds what a search on a grid has tried: of all layers as trials, of a few layers as hints. */
enum status pool_add_search(struct pool *pool, const struct strategy *grid, const struct search *x);
/* Adds a trial of all layers. */
enum status pool_add(struct pool_grid *g, const struct candidate *c);

/* The grid that `like` has, ready to judge candidates; it is added if there is room, else *out is NULL. */
enum status pool_open(struct pool *pool, const struct strategy *like, struct pool_grid **out);

/* Trials of all layers. */
int pool_trials(const struct pool *pool);
/* Whether c was tried on all layers. */
int pool_knows(const struct pool *pool, const struct candidate *c);
/* The lowest price of the trials on a grid that fit; INFINITY: none does. */
double pool_price_on(const struct pool *pool, const struct strategy *grid);
/* Whether a trial decides about s (candidate_decides) that looked at no fewer prefetch levels than trials do now. */
int pool_decided(const struct pool *pool, const struct pool_grid *g, const struct strategy *s);

typedef int condition(struct pool *pool, const struct candidate *c);
/* The cheapest trial that fits, below a price, for which a condition holds (NULL: any); NULL: there is none. It moves as soon as
 * one is added. */
struct candidate *pool_cheapest(struct pool *pool, double most, condition *holds);
/* The same, copied. Returns 0 if there is none. */
int pool_find(struct pool *pool, double most, condition *holds, struct candidate *out);
/* The next trial by price. Returns 0 if there is none. */
int pool_next(const struct pool *pool, const struct candidate *after, struct candidate *out);

/* Forgets trials with other layer inputs. */
void pool_keep_inputs(struct pool *pool, int keep_every);
/* Forgets trials on other grids. */
void pool_keep_grid(struct pool *pool, const struct strategy *grid);

#endif
