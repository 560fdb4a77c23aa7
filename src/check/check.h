/* Checking that a mesh, ZeRO stage and offload compute the same as one rank with everything resident. */
#ifndef LTRAIN_CHECK_CHECK_H
#define LTRAIN_CHECK_CHECK_H

#include "base/status.h"
#include "comm/comm.h"
#include "settings/settings.h"

/* Trains `steps` steps with the settings on all ranks of comm and, in lockstep, the same steps on rank 0 alone (the reference run).
 * Compares losses, gradient norms and every parameter's gradient, and at the end the parameters. Prints a table; leaves no files.
 * ERR_CORRUPT, on all ranks alike, names the first tensor that differs; ERR_NOFIT: rank 0's memory does not hold the reference run. */
enum status check_run(struct settings *s, struct comm *comm, int64_t steps);

#endif
