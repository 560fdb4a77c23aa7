/* Rows of learned positions that no sequence of a run reaches. They are not in the session's memory; checkpoints and exports copy
 * them from the state's origin (session->origin). Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_UNUSED_H
#define LTRAIN_CHECKPOINT_UNUSED_H

#include "checkpoint/shards.h"
#include "checkpoint/state.h"

struct unused;
/* Opens the origin. kinds: for each kind of state up to STATE_V, whether it will be written. All ranks call it and get the same
 * status.
 *
 * Weights must be the ones that were loaded. A checkpoint's files are hashed as a whole once; later only the copied bytes are
 * (unused_write), which stay the same from one checkpoint to the next. An error names the origin that is gone, damaged or
 * changed. */
enum status unused_open(struct session *s, const int kinds[STATE_V + 1], struct unused **out);
/* Writes such state of every declared tensor (tensor: by parameter, -1: not in the file), in chunks of a group that the ranks
 * take in turn. Adds this rank's elements to *written. Moments that the origin does not have are zero. All ranks call it and get
 * the same status. */
enum status unused_write(struct unused *x, enum state_kind kind, const int *tensor, struct shard_writer *file, int64_t *written);
void unused_close(struct unused *x); /* NULL is fine */

#endif
