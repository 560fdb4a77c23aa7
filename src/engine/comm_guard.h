/* Guarding the ranks while a library of the device carries their messages. Private to src/engine. */
#ifndef LTRAIN_ENGINE_COMM_GUARD_H
#define LTRAIN_ENGINE_COMM_GUARD_H

#include "engine/comm_lanes.h"

/* Until the other lanes are done: listens to the other ranks and agrees with them on where to stop, looks at their processes and
 * at the library's health. A collective whose operands are there and that is not done within the deadline, a rank that has died,
 * a failure of the library or of another lane: the board fails, the library's messages are aborted, so that streams drain, and
 * nothing of either is of use any more. */
enum status comm_guard_run(struct comm_run *r);

#endif
