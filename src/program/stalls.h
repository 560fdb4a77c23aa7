/* Pauses of compute and their causes, on the virtual clock or as measured. */
#ifndef LTRAIN_PROGRAM_STALLS_H
#define LTRAIN_PROGRAM_STALLS_H

#include "program/program.h"

/* An index of instructions by lane and ticket. */
struct lane_index {
    int first[LANES];
    int *at;
};

enum status lane_index_make(const struct program *p, struct lane_index *x);
void lane_index_free(struct lane_index *x); /* an empty one is fine */

/* Begin and end of an instruction, in seconds since the program's start. */
struct span {
    double start, end;
};

/* Times of a program's executed instructions. */
struct timeline {
    const struct program *p;
    const struct lane_index *index;
    struct span (*span)(const void *user, const struct program *p, int instr);
    const void *user;
    /* 1: instructions of the I/O lanes start when they are submitted, several at once, as in measured times; 0: one after the
     * other */
    int submits;
    const unsigned char *apart; /* by unit: 1: what it makes wait is also counted in stalls.apart; NULL: no unit */
};

/* Returns the instruction that kept `instr` from starting earlier, and in *ready the moment until which it did; -1, with *ready
 * 0: none.
 *
 * This is the last to end among the instructions that `instr` waits for and its predecessor on the lane. On an I/O lane of a
 * timeline that submits, the predecessor counts with its start instead of its end. */
int stalls_released_by(const struct timeline *t, int instr, double *ready);

/* Seconds for which compute stands still, by lane and class of the awaited data; summed over classes (lane) and over lanes
 * (class). */
struct stalls {
    double waited[LANES][CLASSES], lane[LANES], class[CLASSES], apart;
};

/* Charges compute's pauses to the instructions for which it waited, and on to those that made these late; adds the seconds
 * `count` times. The time from compute's last instruction to `end` is a pause, too. A pause in which nothing was missing is not
 * charged. */
void stalls_add(const struct timeline *t, double end, double count, struct stalls *s);

/* Returns the class of the data that an instruction of a lane other than compute moves. */
enum tensor_class stalls_class(const struct program *p, const struct instr *in);

#endif
