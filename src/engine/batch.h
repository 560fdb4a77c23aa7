/* Turning a whole sequence into the inputs of this rank's program: tokens, masks, predicates. */
#ifndef LTRAIN_ENGINE_BATCH_H
#define LTRAIN_ENGINE_BATCH_H

#include "data/corpus.h"
#include "engine/session.h"
#include "seqpar/seqpar.h"

struct batch;

/* Creates the batch for the session's mesh and micro-batch; the session must outlive it. seq_len: tokens of a sequence without
 * padding. A whole micro-batch is laid out over the ranks: one sequence, or several one after another (--micro-batch). */
enum status batch_create(struct session *s, int64_t seq_len, struct batch **out);
void batch_destroy(struct batch *b); /* NULL is fine */

/* Returns arrays for the i-th whole sequence of the micro-batch: the caller fills its first `used` tokens, as if it were alone, then
 * calls batch_add. Weights, if the plan has any, are 1 until the caller changes them. */
struct sequence batch_arrays(struct batch *b, int64_t i);
/* Takes the i-th sequence, of which the caller has filled `used` tokens, behind those before it. Tokens beyond `used` are padding. */
void batch_add(struct batch *b, int64_t i, int64_t used);
/* Lays the first n sequences out over the ranks and fills this rank's inputs; 0: an empty micro-batch. All ranks that share them must
 * pass the same. */
enum status batch_publish(struct batch *b, int64_t n);

/* Fills this rank's inputs from one slice of the sequence published last, of those in which stages take it. Publishing fills them from
 * the first. */
void batch_take_slice(struct batch *b, int64_t slice);

/* Leaves the tokens, targets and positions of this stage's share of the rows, for a program of the model's ends (plan/ticks.h). The
 * sequence is published anew, or its slice taken, before other programs. */
void batch_take_share(struct batch *b);

/* Returns the number of rows of this rank's targets. */
int64_t batch_targets(const struct batch *b);
/* Returns the row of the program's positions for row i of its targets: between slices each has only its share of the targets. */
int64_t batch_position(const struct batch *b, int64_t i);
/* Returns the number, in the whole micro-batch published last, of the token of row i of this rank's targets. */
int64_t batch_token(const struct batch *b, int64_t i);
/* Returns a digest of the layout of the micro-batch published last: equal on ranks that agree about the layout. */
uint64_t batch_digest(const struct batch *b);

#endif
