/* What a run does not use of its parameters: rows of learned positions that no sequence reaches. It is not in the session's
 * memory; checkpoints and exports copy it from where the state came from (session->origin). Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_UNUSED_H
#define LTRAIN_CHECKPOINT_UNUSED_H

#include "checkpoint/shards.h"
#include "checkpoint/state.h"

struct unused;
/* Called by all ranks, which get the same status. Of kinds of state [0 .. STATE_V], which those are that will be written. Weights must
 * be the ones that were loaded. A checkpoint's files are hashed as a whole once; after that what is copied is (unused_write), as it
 * stays the same from one checkpoint to the next. An error names the origin that is gone, damaged or changed. */
enum status unused_open(struct session *s, const int kinds[STATE_V + 1], struct unused **out);
/* Called by all ranks: writes such state of every tensor that is declared (tensor: by parameter, -1: not in the file), in chunks
 * of a group that are dealt to the ranks in turn; adds this rank's elements to *written. Moments that the origin does not have
 * are zero. All return the same. */
enum status unused_write(struct unused *x, enum state_kind kind, const int *tensor, struct shard_writer *file, int64_t *written);
void unused_close(struct unused *x); /* NULL is fine */

#endif
