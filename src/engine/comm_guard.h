/* Guarding the ranks while a library of the device carries their messages. Private to src/engine. */
#ifndef LTRAIN_ENGINE_COMM_GUARD_H
#define LTRAIN_ENGINE_COMM_GUARD_H

#include "engine/comm_lanes.h"

/* Guards the ranks until the other lanes are done. Listens to the other ranks, agrees with them on where to stop, and watches
 * their processes and the library's health.
 *
 * Failures are: a collective that is not done within the deadline though its operands are there, a dead rank, a failure of the
 * library or of another lane. Then the board fails and the library's messages are aborted, so that streams drain; neither is of
 * use any more. */
enum status comm_guard_run(struct comm_run *r);

#endif
