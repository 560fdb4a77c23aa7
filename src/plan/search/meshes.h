/* The meshes that a request leaves open, from the most promising one on. Private to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_MESHES_H
#define LTRAIN_PLAN_SEARCH_MESHES_H

#include "plan/search/problem.h"

struct numerics;
struct start;

/* A mesh that was weighed. */
struct mesh_weighed {
    struct mesh mesh;
    double guess;   /* seconds of a step in closed form */
    double excess;  /* the share of all memory that it needs at least, likewise */
    double seconds; /* of its best trial; 0: none was tried, since it promises to be slower than others */
    int fits;       /* that trial did */
};

/* Those that are looked at closer are the first MESHES_CLOSE. */
enum { MESHES_CLOSE = 8 };
struct meshes {
    struct mesh_weighed of[MESHES_CLOSE];
    int n;     /* 0: the mesh is given */
    int legal; /* how many there are */
};

/* Lists them by seconds in closed form, those that need more memory than there is last. Where none is open, out->n is 0. */
enum status meshes_list(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct meshes *out);
/* Lists them, tries the ones that promise about as much as the first one briefly, and sets the mesh of s to the one that is fastest.
 * *out: its placements; NULL: nothing was tried, since the mesh is given or one of them promises far more than the others. *trials grows by
 * what was tried. */
enum status meshes_choose(const struct start *from, struct plan_request *s, struct meshes *all, struct numerics **out, int *trials);
/* Takes the first one, where some are open. */
enum status meshes_take_first(const struct model *m, const int64_t limit[TIERS], struct plan_request *s);

#endif
