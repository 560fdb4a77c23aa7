/* Lives of a simulated cluster: each trains, saves and resumes as a run does. */
#ifndef TESTS_SIMULATE_CLUSTER_H
#define TESTS_SIMULATE_CLUSTER_H

#include "world.h"

enum { CLUSTER_STEPS = 4, CLUSTER_SAVE_EVERY = 2, CLUSTER_SAVES = CLUSTER_STEPS / CLUSTER_SAVE_EVERY };

/* Number of forms of clusters: ranks, mesh, ZeRO stage, type, tiers. */
int cluster_forms(void);
const char *cluster_name(int form);
int cluster_ranks(int form);
/* Returns another form that may go on with this one's checkpoints. */
int cluster_partner(int form);

/* Outcome of a life. */
struct outcome {
    int hangs, began;                              /* began: step of the checkpoint with which it began */
    int64_t saved;                                 /* newest step whose save returned OK on some rank */
    int64_t points[WORLD_MOST];                    /* places at which each rank could be killed, passed so far (world.h) */
    int64_t save_at[WORLD_MOST][CLUSTER_SAVES][2]; /* numbers of the places at which saves begin and end */
    char said[WORLD_MOST][1024];                   /* sentence of each rank that failed; "" */
    enum life life[WORLD_MOST];
};

/* Lives once in the directory `dir`, to step `last` at most. */
void cluster_live(int form, const char *dir, uint64_t seed, const struct faults *faults, int last, struct outcome *out);
/* Finds the newest whole checkpoint, as a process of its own would. Returns its step and the hash of its state; 0: none. */
int cluster_look(const char *dir, uint64_t *hash, char *said, int size);

#endif
