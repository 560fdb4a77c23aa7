/* Declarations shared by the parts of the program checkpoint_ranks. */
#ifndef LTRAIN_TESTS_ENGINE_CHECKPOINT_RANKS_H
#define LTRAIN_TESTS_ENGINE_CHECKPOINT_RANKS_H

#include "checkpoint/checkpoint.h"
#include "engine/rig.h"

enum { BATCH = 4 };

extern struct comm *comm;
extern int rank, size, failures;
extern const char *dir; /* directory that the test may write to */

#define CHECK(x, ...)                                                       \
    do {                                                                    \
        if (!(x)) {                                                         \
            failures++;                                                     \
            fprintf(stderr, "rank %d of %d: not ok: %s: ", rank, size, #x); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
        }                                                                   \
    } while (0)

/* Ends all ranks if the status is an error. */
void must(enum status st, const char *what);

struct layout {
    struct mesh mesh;
    int zero, nvme;
};

/* Starts a run of a small model with parameters drawn from the seed. */
void start(struct rig *r, const struct layout *l, enum dtype dtype, int layers, uint64_t seed);
/* Computes digests of parameters (and masters), m and v over all ranks, independent of which rank holds what. */
void digest(struct rig *r, uint64_t out[3]);
struct checkpoint_info info_of(int64_t step);

/* ---- checkpoint_failures.c ---- */
void fail_all(int all);
/* Saves until a rank is killed; seed 0: no rank is killed. */
void be_killed(uint64_t seed);
/* ---- checkpoint_positions.c ---- */
void keep_positions(void);

#endif
