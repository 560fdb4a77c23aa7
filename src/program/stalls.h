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

/* Seconds since the program's start. */
struct span {
    double start, end;
};

/* Times of executed instructions. */
struct timeline {
    const struct program *p;
    const struct lane_index *index;
    struct span (*span)(const void *user, const struct program *p, int instr);
    const void *user;
    /* 1: instructions of the I/O lanes start when they are submitted, several at once, as in measurements; 0: one after the
     * other. */
    int submits;
};

/* Returns the instruction that kept `instr` from starting earlier: the last to end among its waits and its predecessor on the
 * lane (if the predecessor's start is enough, that counts); -1: none. *ready: the moment of that end; 0 if there is none. */
int stalls_released_by(const struct timeline *t, int instr, double *ready);

/* Seconds that compute stands still for a class on a lane; for a lane over all classes, and for a class over all lanes. */
struct stalls {
    double waited[LANES][CLASSES], lane[LANES], class[CLASSES];
};

/* Charges compute's pauses to the instructions that it waited for, back along waits and lanes; adds them `count` times. The time
 * after its last instruction until `end` is a pause, too. A pause in which nothing was missing is not charged. */
void stalls_add(const struct timeline *t, double end, double count, struct stalls *s);

/* Returns the class of the data that an instruction of another lane moves. */
enum tensor_class stalls_class(const struct program *p, const struct instr *in);

#endif
