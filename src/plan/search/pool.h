/* Trials by tile grid. Private to the climb. */
#ifndef LTRAIN_PLAN_SEARCH_POOL_H
#define LTRAIN_PLAN_SEARCH_POOL_H

#include "plan/search/local.h"

#include "plan/search/tuning.h"

struct grid {
    struct strategy fixed;
    int large;           /* its programs are not tried */
    struct search tried; /* its candidates are the trials alone */
    int room;
};

struct climb {
    struct problem problem;
    struct strategy fixed; /* on the usual grid */
    enum climb_grids look_at;
    struct grid grids[POOL_GRIDS];
    int n;
    struct candidate hints[POOL_HINTS]; /* the cheapest first; the strategies say of which grid */
    int n_hints;
    double spent, most;                    /* instructions */
    int last;                              /* the last pace that trials look at (fit.h), before FIT_SERIAL */
    char gone_from[DECISIONS_FAMILIES];    /* the set of families that were starts */
    struct strategy visited[POOL_VISITED]; /* what was looked beside */
    double least;                          /* the price of what is gone on from: cheaper ones belong to other starts */
    int n_visited;
};

/* The grid that `like` has, ready to judge candidates; it is added if there is room, else *out is NULL. */
enum status climb_open(struct climb *cl, const struct strategy *like, struct grid **out);
/* Adds a trial of all layers. */
enum status climb_add(struct grid *g, const struct candidate *c);

/* Whether a trial has settled it (search_decided) that looked at no fewer paces than trials do now. */
int climb_settled(const struct climb *cl, const struct grid *g, const struct strategy *s);

typedef int condition(struct climb *cl, const struct candidate *c);
/* The cheapest trial that fits, below a price, of those for which a condition holds (NULL: of all); NULL: there is none. It moves
 * as soon as one is added. */
struct candidate *climb_cheapest(struct climb *cl, double most, condition *holds);
/* The same, copied. Returns 0 if there is none. */
int climb_find(struct climb *cl, double most, condition *holds, struct candidate *out);

/* Forgets trials with other layer inputs. */
void climb_keep_inputs(struct climb *cl, int input_every);
/* Forgets trials on other grids. */
void climb_keep_grid(struct climb *cl, const struct strategy *grid);

#endif
