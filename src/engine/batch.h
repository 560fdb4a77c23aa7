/* From a whole sequence to what this rank's program reads: its tokens, its masks, its predicates. */
#ifndef LTRAIN_ENGINE_BATCH_H
#define LTRAIN_ENGINE_BATCH_H

#include "data/corpus.h"
#include "engine/session.h"
#include "seqpar/seqpar.h"

struct batch;

/* Of the session's mesh and sequence length; the session must outlive it. seq_len: tokens of a sequence without padding. */
enum status batch_create(struct session *s, int64_t seq_len, struct batch **out);
void batch_destroy(struct batch *b); /* NULL is fine */

/* Arrays for one whole sequence; fill the first `used` tokens, then publish. */
struct sequence batch_arrays(struct batch *b);
/* Lays the sequence out over the ranks (the rest is padding; used 0: an empty sequence) and fills this rank's inputs. All ranks
 * that share the sequence must give the same. */
enum status batch_publish(struct batch *b, int64_t used);

/* Of the sequence published last: equal on ranks that agree about its layout. */
uint64_t batch_digest(const struct batch *b);

#endif
