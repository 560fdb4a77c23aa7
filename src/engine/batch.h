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

/* Returns arrays for one whole sequence: the caller fills the first `used` tokens, then publishes. Weights, if the plan has any,
 * are 1 until the caller changes them. */
struct sequence batch_arrays(struct batch *b);
/* Lays the sequence out over the ranks and fills this rank's inputs. Tokens beyond `used` are padding (0: an empty sequence). All
 * ranks that share the sequence must pass the same. */
enum status batch_publish(struct batch *b, int64_t used);

/* Leaves the tokens, targets and positions of this stage's share of the rows, for a program of the model's ends (plan/ticks.h). The
 * sequence is published anew before other programs. */
void batch_take_share(struct batch *b);

/* Returns the number of rows of this rank's targets. */
int64_t batch_targets(const struct batch *b);
/* Returns the row of the program's positions for row i of its targets: between slices each has only its share of the targets. */
int64_t batch_position(const struct batch *b, int64_t i);
/* Returns the number, in the whole sequence published last, of the token of row i of this rank's targets. */
int64_t batch_token(const struct batch *b, int64_t i);
/* Returns a digest of the layout of the sequence published last: equal on ranks that agree about the layout. */
uint64_t batch_digest(const struct batch *b);

#endif
