/* Makes meshes with the usual order of ranks. */
#ifndef LTRAIN_TESTS_PROGRAM_GRID_H
#define LTRAIN_TESTS_PROGRAM_GRID_H

#include "verify/mesh.h"

#include <string.h>

enum { GRID_RANKS = 1024 };

struct grid {
    struct mesh_roles m;
    int32_t role[GRID_RANKS], group[4][GRID_RANKS], member[4][GRID_RANKS]; /* world, ulysses, ring, sequence; then by rank */
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
        g->group[3][r] = d;
        g->member[3][r] = i * ulysses + j;
    }
    const int apart = dp > 1 && ring > 1 && ulysses > 1; /* else another lane has the groups of sequences */
    const int sizes[] = {n, ulysses, ring, apart ? ring * ulysses : 1};
    static const enum lane lanes[] = {LANE_WORLD, LANE_ULYSSES, LANE_RING, LANE_SEQUENCE};
    for (int l = 0; l < 4; l++) {
        g->m.group[lanes[l]] = sizes[l] > 1 ? g->group[l] : NULL;
        g->m.member[lanes[l]] = sizes[l] > 1 ? g->member[l] : NULL;
    }
}

#endif
