/* The sequences that this rank computes, and sums over all ranks. */
#ifndef LTRAIN_TRAIN_SEQUENCES_H
#define LTRAIN_TRAIN_SEQUENCES_H

#include "text/tokenizer.h"
#include "train/run.h"

/* Fills *out with the first *used tokens of the source's sequence `number`. */
typedef enum status sequence_take(void *user, int64_t number, struct sequence *out, int64_t *used);
struct sequence_source {
    sequence_take *take;
    void *user;
    int counts_bytes;                  /* 1: counts the bytes of the targets' text */
    const struct tokenizer *tokenizer; /* tokenizer of that text; NULL: tokens are bytes */
};

/* Counts of sequences; ranks that share their sequences count them once. */
struct tally {
    int64_t sequences, targets, tokens, bytes; /* tokens: without padding; bytes: of the targets' text */
    double pairs[MODEL_MASKS];
    uint64_t digest; /* hash of the layouts: equal on ranks that share their sequences */
};

/* Returns the first of the sequences, of `total`, that this rank computes in its i-th micro-batch; -1: none is left. */
int64_t sequences_own(const struct run *r, int64_t total, int64_t i);
/* Returns the number of micro-batches of each rank for `total` sequences. */
int64_t sequences_micro_batches(const struct run *r, int64_t total);
/* Makes the micro-batch that begins with sequence `first`, of `total`, this rank's input (an empty one if first is below 0), and adds
 * its counts to *t. */
enum status sequences_publish(struct run *r, const struct sequence_source *source, int64_t first, int64_t total, struct tally *t);
/* Adds up the counts of all ranks. */
enum status sequences_add_up(struct run *r, const struct tally *own, struct tally *sum);
/* Makes all ranks agree on the status of reading data, before anything is computed from them. */
enum status sequences_agree_read(struct run *r, enum status st);

#endif
