/* The state of all ranks against that of one that holds everything. Private to src/train. */
#ifndef LTRAIN_TRAIN_CHECK_STATE_H
#define LTRAIN_TRAIN_CHECK_STATE_H

#include "engine/session_state.h"
#include "train/difference.h"

/* Every rank of the given session calls it; `alone` is a session of one rank, held by rank 0 (NULL elsewhere). d: of the model's
 * parameters (n_params), rank 0; those of the unit are set: every piece of every rank's shards is compared; of state that every
 * rank holds, rank 0's, and the others by hash; of parameters, with the gradients of `alone`, which mean something while an update
 * is pending. Beside the two sessions it needs the unit in fp32 on rank 0, of parameters twice, and on each rank its shard of the
 * unit and 1 MiB per rank. excuse: of the unit's elements (difference_add). */
enum status check_unit(struct session *given, struct session *alone, int unit, enum state_kind kind, struct excuse excuse,
                       struct difference *d);

/* Adds to `slack`, of the unit's elements, how far the update just done may have moved each apart. noise: of the model's
 * parameters, the `relative` of r. */
enum status check_reach(struct session *alone, int unit, const struct reach *r, const double *noise, float *slack);

#endif
