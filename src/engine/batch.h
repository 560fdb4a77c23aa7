/* Turning a whole sequence into the inputs of this rank's program: tokens, masks, predicates. */
#ifndef LTRAIN_ENGINE_BATCH_H
#define LTRAIN_ENGINE_BATCH_H

#include "data/corpus.h"
#include "engine/session.h"
#include "seqpar/seqpar.h"

struct batch;

/* Creates the batch for the session's mesh and sequence length; the session must outlive it. seq_len: tokens of a sequence
 * without padding. */
enum status batch_create(struct session *s, int64_t seq_len, struct batch **out);
void batch_destroy(struct batch *b); /* NULL is fine */

/* Returns arrays for one whole sequence: the caller fills the first `used` tokens, then publishes. */
struct sequence batch_arrays(struct batch *b);
/* Lays the sequence out over the ranks and fills this rank's inputs. Tokens beyond `used` are padding (0: an empty sequence). All
 * ranks that share the sequence must pass the same. */
enum status batch_publish(struct batch *b, int64_t used);

/* Returns a digest of the layout of the sequence published last: equal on ranks that agree about the layout. */
/* Returns the row of the program's positions for row i of its targets: between slices each has only its share of the targets. */
int64_t batch_position(const struct batch *b, int64_t i);
uint64_t batch_digest(const struct batch *b);

#endif
