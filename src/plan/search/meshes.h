/* The meshes, and the sequences of a micro-batch, that a request leaves open, from the most promising one on. Private to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_MESHES_H
#define LTRAIN_PLAN_SEARCH_MESHES_H

#include "plan/search/problem.h"

struct searched;
struct start;

/* A mesh that was weighed. */
struct mesh_weighed {
    struct mesh mesh;
    int64_t packed; /* sequences of a micro-batch */
    int zero;       /* ZeRO stage of a mesh with slices or stages of layers; 0: the request's */
    double guess;   /* seconds of a step in closed form */
    double excess;  /* least share of all memory that is needed, in closed form */
    double seconds; /* seconds of the mesh's best trial; 0: not tried, since it promises to be slower than others */
    int fits;       /* the best trial fits */
};

/* Number of a request's most promising meshes that are looked at more closely. */
enum { MESHES_CLOSE = 8 };
struct meshes {
    struct mesh_weighed of[MESHES_CLOSE];
    int n;     /* 0: both are given */
    int legal; /* number of meshes that the request allows */
};

/* Lists the meshes, briefly tries those that promise about as much as the first, and sets the mesh of s to the fastest. Adds the
 * number of trials to *trials.
 *
 * *out: the chosen mesh's placements; NULL: nothing was tried, since the mesh is given or a mesh promises far more than the
 * others. */
enum status meshes_choose(const struct start *from, struct plan_request *s, struct meshes *all, struct searched **out,
                          int *trials);
/* Sets the mesh of s to the most promising one, if the request leaves it open. */
enum status meshes_take_first(const struct model *m, const int64_t limit[TIERS], struct plan_request *s);

#endif
