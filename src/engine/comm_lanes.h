/* The comm lanes of a program, all run by one thread. Private to src/engine. */
#ifndef LTRAIN_ENGINE_COMM_LANES_H
#define LTRAIN_ENGINE_COMM_LANES_H

#include "device/tickets.h"
#include "engine/executor.h"

struct comm_run {
    const struct exec_context *context;
    const struct program *program;
    struct tickets *tickets;
    const uint8_t *must;      /* 1 for each instruction that runs even if the ranks agree on a cut before it (comm_is_cut) */
    const atomic_int *others; /* number of other lanes that are not at the program's end */
    /* Called when an instruction of the lane retires. start_ns 0: it was left out. */
    void (*retire)(void *user, enum lane lane, int instr, int64_t start_ns);
    /* Called when the program is cut and only instructions in `must` remain on these lanes. */
    void (*settle)(void *user);
    void *user;
};

/* Runs all instructions of all comm lanes, and listens to the other ranks until the other lanes are done. ERR_CANCELLED if
 * another lane failed, or if a cut program leaves nothing to do. Operations in flight at a failure stay so, and the communicator
 * is of no further use. */
enum status comm_lanes_run(struct comm_run *r);

/* Adds to a failure's message the instruction at which the failure was noticed. Returns st. */
enum status comm_lanes_explain(const struct program *p, int i, enum status st);

#endif
