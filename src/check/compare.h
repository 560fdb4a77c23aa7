/* Comparing the state of all ranks with that of a rank that holds everything. Private to src/check. */
#ifndef LTRAIN_CHECK_COMPARE_H
#define LTRAIN_CHECK_COMPARE_H

#include "check/difference.h"
#include "engine/session_state.h"

/* Compares a unit's state; every rank of the given session calls it. `alone` is a session of one rank, held by rank 0 (NULL
 * elsewhere). d: differences by parameter of the model (n_params), on rank 0; those of the unit are set.
 *
 * Sharded state is compared piece by piece from every rank. Of state that every rank holds, rank 0's is compared and the others'
 * by hash. Parameters are compared with the gradients of `alone` beside them, which are valid only while an update is pending.
 *
 * Needs memory beside the two sessions: the unit in fp32 on rank 0 (twice for parameters), and on each rank its shard of the unit
 * and 1 MiB per rank. excuse: by element of the unit (difference_add). */
enum status check_unit(struct session *given, struct session *alone, int unit, enum state_kind kind, struct excuse excuse,
                       struct difference *d);

/* Adds to `slack`, by element of the unit, the distance that the update just done may have moved the two runs apart. noise:
 * relative difference of the gradients by parameter of the model, used as r's `relative`. */
enum status check_reach(struct session *alone, int unit, const struct reach *r, const double *noise, float *slack);

#endif
