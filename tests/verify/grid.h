/* Makes meshes with the usual order of ranks. */
#ifndef LTRAIN_TESTS_PROGRAM_GRID_H
#define LTRAIN_TESTS_PROGRAM_GRID_H

#include "verify/mesh.h"

#include <string.h>

enum { GRID_RANKS = 1024 };

struct grid {
    struct mesh_roles m;
    int32_t role[GRID_RANKS], group[3][GRID_RANKS], member[3][GRID_RANKS]; /* indexed by lane - LANE_WORLD, then by rank */
};

/* Makes a mesh of ranks (d * ring + i) * ulysses + j, all of role 0. */
static inline void grid_make(struct grid *g, int dp, int ring, int ulysses)
{
    int n = dp * ring * ulysses;
    memset(g, 0, sizeof *g);
    g->m.n_ranks = n;
    g->m.role = g->role;
    for (int r = 0; r < n; r++) {
        int j = r % ulysses, i = r / ulysses % ring, d = r / ulysses / ring;
        g->member[0][r] = r;
        g->group[1][r] = d * ring + i;
        g->member[1][r] = j;
        g->group[2][r] = d * ulysses + j;
        g->member[2][r] = i;
    }
    int sizes[3] = {n, ulysses, ring};
    for (int l = 0; l < 3; l++) {
        g->m.group[LANE_WORLD + l] = sizes[l] > 1 ? g->group[l] : NULL;
        g->m.member[LANE_WORLD + l] = sizes[l] > 1 ? g->member[l] : NULL;
    }
}

#endif
