/* Meshes with slices (tp) or stages (pp) of layers, weighed in closed form. Private to src/plan. */
#ifndef LTRAIN_PLAN_SEARCH_PARTS_H
#define LTRAIN_PLAN_SEARCH_PARTS_H

#include "plan/search/meshes.h"

/* Meshes with parts of layers, from the most promising one on. */
struct parts_weighed {
    struct mesh_weighed plain; /* the most promising mesh of whole layers */
    struct mesh_weighed of[MESHES_CLOSE];
    int n;     /* 0: none may be faster than the plain mesh */
    int legal; /* number of meshes with parts that were weighed */
};

/* Weighs the meshes with parts that s->open_parts leaves open. Nothing is weighed where the plain mesh hardly waits for messages. */
enum status parts_weigh(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                        struct parts_weighed *out);

#endif
