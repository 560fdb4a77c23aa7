/* A cluster in one process: ranks are coroutines, time is simulated, and all that happens follows from a seed. */
#ifndef TESTS_SIMULATE_WORLD_H
#define TESTS_SIMULATE_WORLD_H

#include <stdint.h>

enum { WORLD_MOST = 4, WORLD_PID = 1000 /* a rank's process number is this plus the rank */ };

enum life { LIFE_RUNS, LIFE_ENDED, LIFE_FAILED, LIFE_KILLED };

/* Faults of one life of the cluster; 0: none. Points are calls to world_point, in order, by rank. */
struct faults {
    int64_t kill_at[WORLD_MOST];                         /* point at which a rank is killed */
    int64_t stop_at[WORLD_MOST], stopped_ns[WORLD_MOST]; /* point at which a rank is stopped, and for how long */
    int64_t cut_at[WORLD_MOST];                          /* call of the wire from which on a rank's connections are broken */
    int64_t fail_at[WORLD_MOST];                         /* changing call to the drive that fails */
    int fail_with[WORLD_MOST];                           /* its errno */
    int slow;                                            /* 1: calls to the drive take up to a second */
    int jumps;                                           /* 1: the time of day jumps */
};

/* Protocol bugs that are planted on request (host.c). */
enum bug { BUG_NONE, BUG_AGREES_ALONE, BUG_PRUNES_FIRST, BUG_IGNORES_ERRORS, BUG_DONE_EARLY, BUG_WAITS_FOR_EVER, BUGS };
extern enum bug world_bug;
extern const char *const world_bug_names[BUGS];

/* Begins a life: `ranks` ranks execute `run(rank)`, whose result is 0 if the rank has not failed. Returns 0 if all have ended or
 * died; -1: the simulated time is over, so that they hang. */
int world_run(uint64_t seed, int ranks, const struct faults *faults, int (*run)(int rank));

/* Returns the calling thread's rank; -1: the thread is none of the cluster. */
int world_rank(void);
int world_ranks(void);
enum life world_life(int rank);
/* Tells whether a rank is stopped now. */
int world_is_stopped(int rank);
/* Draws a number below n. */
int64_t world_draw(int64_t n);
int64_t world_now(void);
/* Lets some time pass, and perhaps other ranks run; the rank may be killed here. For other threads nothing happens. */
void world_point(void);
/* The same, for at least ns nanoseconds. */
void world_sleep(int64_t ns);
/* Points of a rank so far. */
int64_t world_points(int rank);
/* Tells whether a rank's next call of the wire finds its connections broken. */
int world_is_cut(void);
/* Lets a changing call to the drive take its time. Returns the errno with which it fails; 0: it does not. */
int world_drive(void);
/* Notes a descriptor that a rank has opened or closed: those of a killed rank are closed. */
void world_opened(int fd);
void world_closed(int fd);
/* Takes a killed rank's messages out of the wire (wire.c). */
void wire_forget(int rank);
/* Empties the wire. */
void wire_reset(void);

#endif
