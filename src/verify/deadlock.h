/* What the two parts of the mesh verifier share: matching (verify_mesh.c), then the search for deadlocks (verify_deadlock.c). */
#ifndef LTRAIN_VERIFY_DEADLOCK_H
#define LTRAIN_VERIFY_DEADLOCK_H

#include "verify/mesh.h"

/* Numbers by index, lists back to back: list i is at[first[i]] .. at[first[i + 1] - 1]. */
struct lists {
    int32_t *first, *at;
};

struct mesh {
    const struct program *const *roles;
    const struct mesh_roles *m;
    int n_roles;
    struct lists groups[LANES]; /* ranks by group and member */
    struct lists *tickets;      /* [n_roles]: instructions by lane and ticket */
};

/* 0: out of memory; destroy it all the same. */
int lists_create(struct lists *l, int n, int64_t total);
void lists_destroy(struct lists *l);

static inline const struct program *mesh_program(const struct mesh *x, int rank)
{
    return x->roles[x->m->role[rank]];
}

/* How many instructions the rank's lane has, and the k-th of them, from 0. */
static inline int64_t mesh_count(const struct mesh *x, int rank, int lane)
{
    const struct lists *t = &x->tickets[x->m->role[rank]];
    return t->first[lane + 1] - t->first[lane];
}

static inline const struct instr *mesh_instr(const struct mesh *x, int rank, int lane, int64_t k)
{
    const struct lists *t = &x->tickets[x->m->role[rank]];
    return &mesh_program(x, rank)->instrs[t->at[t->first[lane] + k]];
}

/* ERR_CORRUPT if ranks whose collectives match wait for each other in a circle. */
enum status mesh_check_deadlock(const struct mesh *x);

#endif
