/* What compute stands still for, on the virtual clock or as measured. */
#ifndef LTRAIN_PROGRAM_STALLS_H
#define LTRAIN_PROGRAM_STALLS_H

#include "program/program.h"

/* Where instructions are: by lane and ticket. */
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

/* When instructions were executed. */
struct timeline {
    const struct program *p;
    const struct lane_index *index;
    struct span (*span)(const void *user, const struct program *p, int instr);
    const void *user;
    /* Instructions of the I/O lanes start when they are submitted, several at once, as when measured; else one after the other.
     */
    int submits;
};

/* What kept an instruction from starting earlier: the last to end of what it waits for and its predecessor on the lane (the
 * predecessor's start where that is enough); -1: nothing. *ready: when that was, 0 if nothing. */
int stalls_released_by(const struct timeline *t, int instr, double *ready);

/* Seconds that compute stands still for a class on a lane; the same over all classes, and over all lanes. */
struct stalls {
    double waited[LANES][CLASSES], lane[LANES], class[CLASSES];
};

/* Charges compute's pauses, and what comes after its last instruction until `end`, to what they waited for, back along waits and
 * lanes; adds them `count` times. Pauses that began after all that they needed was there are nobody's. */
void stalls_add(const struct timeline *t, double end, double count, struct stalls *s);

/* The class of what an instruction of another lane moves. */
enum tensor_class stalls_class(const struct program *p, const struct instr *in);

#endif
