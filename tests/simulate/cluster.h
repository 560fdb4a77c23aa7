/* Lives of a simulated cluster: in each, every rank runs `ltrain` to its end, or until a fault ends it. */
#ifndef TESTS_SIMULATE_CLUSTER_H
#define TESTS_SIMULATE_CLUSTER_H

#include "world.h"

enum { CLUSTER_STEPS = 4, CLUSTER_SAVES = 3 /* places of saves that are noted */ };

/* Number of forms of clusters: ranks, mesh, ZeRO stage, type, tiers, model. */
int cluster_forms(void);
const char *cluster_name(int form);
int cluster_ranks(int form);
/* Returns another form that may go on with this one's checkpoints. */
int cluster_partner(int form);

/* Outcome of a life. */
struct outcome {
    int hangs, began;                              /* began: step of the checkpoint with which it began */
    int signalled;                                 /* 1: some rank ended well because of a signal */
    int64_t saved;                                 /* newest step whose save returned OK on some rank */
    int64_t points[WORLD_MOST];                    /* places of each rank, passed so far (world.h) */
    int64_t save_at[WORLD_MOST][CLUSTER_SAVES][2]; /* numbers of the places at which saves begin and end; 0: none */
    char said[WORLD_MOST][1024];                   /* sentence of each rank that failed; "" */
    enum life life[WORLD_MOST];
};

/* Numbers of a run at each of its steps, and its model's hash at the end. */
struct course {
    enum { COURSE_UNKNOWN, COURSE_OF_SOME, COURSE_OF_ALL } known; /* SOME: only every other step was saved */
    uint64_t state[CLUSTER_STEPS + 1];                            /* hashes of checkpoints; 0: there is none */
    double loss[CLUSTER_STEPS + 1], evaluated[CLUSTER_STEPS + 1]; /* NaN: the log has none */
    uint64_t model;
};

/* Kinds of runs: one that saves every other step and keeps one checkpoint, or one that saves and keeps all. */
enum cluster_saves { SAVES_SOME, SAVES_ALL };

/* Writes data and models into the directory `root`; lives take place in its directory `here`, and their run is here/run. */
int cluster_prepare(const char *root);
/* Lives once: resumes the run if it has a checkpoint, else begins it anew. */
void cluster_live(int form, enum cluster_saves saves, uint64_t seed, const struct faults *faults, struct outcome *out);
/* Finds the newest whole checkpoint of a run, as a process of its own would. Returns its step and the hash of its state; 0: none. */
int cluster_look(const char *run, uint64_t *hash, char *said, int size);
/* Reads the log of here/run, all of its checkpoints, and its model. Returns "" or says what is wrong with the log. */
const char *cluster_read(struct course *out);

#endif
