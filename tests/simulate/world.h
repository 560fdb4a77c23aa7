/* A cluster in one process: ranks are coroutines, time is simulated, and all that happens follows from a seed. */
#ifndef TESTS_SIMULATE_WORLD_H
#define TESTS_SIMULATE_WORLD_H

#include <stdint.h>

enum { WORLD_MOST = 4, WORLD_PID = 1000 /* a rank's process number is this plus the rank */ };

enum life { LIFE_RUNS, LIFE_ENDED, LIFE_FAILED, LIFE_KILLED };

/* Kinds of faults. A rank's places are its calls to world_point, in order. */
enum fault_kind {
    FAULT_KILL,   /* the rank is killed at a place */
    FAULT_POWER,  /* all ranks are killed when the rank is at a place, and files lose what was not synced */
    FAULT_SIGNAL, /* the rank gets SIGTERM at a place */
    FAULT_STOP,   /* the rank is stopped at a place for `value` ns */
    FAULT_CUT,    /* the rank's connections are broken from its n-th call of the wire on */
    FAULT_DRIVE,  /* the rank's n-th changing call to the drive fails with the errno `value`; SHORT_WRITE: writes half */
    FAULT_SLOW,   /* calls to the drive take up to a fifth of a second */
    FAULT_KINDS
};
enum { SHORT_WRITE = -1 };

struct fault {
    enum fault_kind kind;
    int rank;
    int64_t at; /* place or call, from 1 on */
    int64_t value;
};

/* Faults of one life of the cluster. */
enum { FAULTS_MOST = 8 };
struct faults {
    int n;
    struct fault fault[FAULTS_MOST];
};

/* Protocol bugs that are planted on request (bugs.c). */
enum bug {
    BUG_NONE,
    BUG_AGREES_ALONE,
    BUG_PRUNES_FIRST,
    BUG_IGNORES_ERRORS,
    BUG_DONE_EARLY,
    BUG_WAITS_FOR_EVER,
    BUG_NOTICE_LOST,
    BUG_RENAMES_FIRST,
    BUG_LOG_NOT_CUT,
    BUG_SAVES_EARLY,
    BUG_OVERTAKES,
    BUG_HALF_IS_WHOLE,
    BUGS
};
extern enum bug world_bug;
extern const char *const world_bug_names[BUGS];

/* Removes the older checkpoint when the next one's directory is made. */
void bug_prune_first(const char *path);

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
/* Lets a changing call to the drive take its time. Returns the errno with which it fails, or SHORT_WRITE; 0: it does not. */
int world_drive(void);
/* Ends the calling rank as a signal does. */
void world_die(void) __attribute__((noreturn));
/* Returns the number of lives led so far, the present one included. */
int world_lives(void);
/* Notes a descriptor that a rank has opened or closed: those of a killed rank are closed. */
void world_opened(int fd);
void world_closed(int fd);
/* Lets the calling rank's handler of a signal run (host.c). */
void host_signal(int number);
/* Forgets handlers and files of former lives. */
void host_reset(void);
/* Takes from files what was not synced. */
void host_cut_power(void);
/* Keeps, or brings back, the variables of train/signals.c, which each process has for itself (signals.c). */
void signals_keep(int rank);
void signals_bring(int rank);
/* Makes them as a process begins. */
void signals_reset(int ranks);
/* Takes a killed rank's messages out of the wire (wire.c). */
void wire_forget(int rank);
/* Empties the wire. */
void wire_reset(void);

#endif
