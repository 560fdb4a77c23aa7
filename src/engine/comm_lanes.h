/* The comm lanes of a program, run by one thread. Private to src/engine. */
#ifndef LTRAIN_ENGINE_COMM_LANES_H
#define LTRAIN_ENGINE_COMM_LANES_H

#include "device/tickets.h"
#include "engine/executor.h"

struct comm_run {
    const struct exec_context *context;
    const struct program *program;
    struct tickets *tickets;
    const uint8_t *must;      /* by instruction: not left out, whatever the ranks agree on (comm_is_cut) */
    const atomic_int *others; /* lanes beside these that are not at the program's end */
    /* Called as an instruction of the lane retires. start_ns 0: it was left out. */
    void (*retire)(void *user, enum lane lane, int instr, int64_t start_ns);
    /* The program is cut, and of these lanes only what must be is to come. */
    void (*settle)(void *user);
    void *user;
};

/* Runs all instructions of all comm lanes, and listens to the other ranks until the other lanes are done, too. ERR_CANCELLED if
 * another lane failed, or if nothing is to come of a program that is cut; what is in flight after a failure stays so, and the
 * communicator is of no further use. */
enum status comm_lanes_run(struct comm_run *r);

/* A failure's sentence with the instruction at which it was noticed. */
enum status comm_lanes_explain(const struct program *p, int i, enum status st);

#endif
