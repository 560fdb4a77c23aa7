/* Second part of the mesh verifier: the search for deadlocks, after mesh.c has found that collectives match. */
#ifndef LTRAIN_VERIFY_DEADLOCK_H
#define LTRAIN_VERIFY_DEADLOCK_H

#include "verify/lists.h"
#include "verify/roles.h"

/* The programs of all ranks, by lane, and the groups of ranks on each lane. */
struct mesh_lanes {
    const struct program *const *roles;
    const struct mesh_roles *m;
    int n_roles;
    struct lists groups[LANES]; /* ranks of each group of a lane, in the order of members */
    struct lists *tickets;      /* [n_roles]: instructions by lane and ticket */
};

static inline const struct program *mesh_program(const struct mesh_lanes *x, int rank)
{
    return x->roles[x->m->role[rank]];
}

/* Returns the number of instructions on a lane of a rank (mesh_count), or the k-th of them, from 0 (mesh_instr). */
static inline int64_t mesh_count(const struct mesh_lanes *x, int rank, int lane)
{
    const struct lists *t = &x->tickets[x->m->role[rank]];
    return t->first[lane + 1] - t->first[lane];
}

static inline const struct instr *mesh_instr(const struct mesh_lanes *x, int rank, int lane, int64_t k)
{
    const struct lists *t = &x->tickets[x->m->role[rank]];
    return &mesh_program(x, rank)->instrs[t->at[t->first[lane] + k]];
}

/* Fails with ERR_CORRUPT if ranks whose collectives match wait for each other in a circle. */
enum status mesh_check_deadlock(const struct mesh_lanes *x);

#endif
