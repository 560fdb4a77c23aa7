/* The comm lanes of a program, run by one thread. Private to src/engine. */
#ifndef LTRAIN_ENGINE_COMM_LANES_H
#define LTRAIN_ENGINE_COMM_LANES_H

#include "device/tickets.h"
#include "engine/executor.h"

struct comm_run {
    const struct exec_context *context;
    const struct program *program;
    struct tickets *tickets;
    /* Called as an instruction of the lane retires. */
    void (*note)(void *user, enum lane lane, int instr, int64_t start_ns);
    void *user;
};

/* Runs all instructions of all comm lanes. ERR_CANCELLED if another lane failed; what is in flight then stays so, and the
 * communicator is of no further use. */
enum status comm_lanes_run(struct comm_run *r);

#endif
