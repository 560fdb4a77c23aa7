/* The ranks of a mesh as its verifier sees them. */
#ifndef LTRAIN_VERIFY_ROLES_H
#define LTRAIN_VERIFY_ROLES_H

#include "program/program.h"

/* The programs and groups of the ranks. The arrays belong to the caller. */
struct mesh_roles {
    int n_ranks;
    int chained;         /* 1: a rank's collectives share a stream: each begins when those before it in the program have ended */
    const int32_t *role; /* [n_ranks]: index of the rank's program */
    /* by comm lane, [n_ranks]: number of each rank's group, 0 .. n_ranks - 1; NULL: the lane is not used */
    const int32_t *group[LANES];
    const int32_t *member[LANES]; /* each rank's index in its group [n_ranks], of each comm lane */
};

#endif
