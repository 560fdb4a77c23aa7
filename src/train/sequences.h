/* Which sequences this rank computes, and what those of all ranks come to. Private to src/train. */
#ifndef LTRAIN_TRAIN_SEQUENCES_H
#define LTRAIN_TRAIN_SEQUENCES_H

#include "text/tokenizer.h"
#include "train/run.h"

/* Where sequences come from: number `number` of them, its first *used tokens. */
typedef enum status sequence_take(void *user, int64_t number, struct sequence *out, int64_t *used);
struct sequence_source {
    sequence_take *take;
    void *user;
    int counts_bytes; /* of the text of what is predicted */
    const struct tokenizer *tokenizer; /* whose text that is; NULL: tokens are bytes */
};

/* Ranks that share their sequences count them once. */
struct tally {
    int64_t sequences, targets, tokens, bytes; /* tokens: without padding; bytes: of targets' text */
    double pairs[MODEL_MASKS];
    uint64_t digest; /* of the layouts: equal on ranks that share their sequences */
};

/* Which of `total` sequences this rank computes in its i-th micro-batch; -1: none is left for it. */
int64_t sequences_own(const struct run *r, int64_t total, int64_t i);
/* Makes the sequence this rank's input (below 0: an empty one), and counts it. */
enum status sequences_publish(struct run *r, const struct sequence_source *source, int64_t number, struct tally *t);
/* Sums over the ranks. */
enum status sequences_add_up(struct run *r, const struct tally *own, struct tally *sum);
/* What reading the data says, as one: nothing has been computed from them. */
enum status sequences_agree_read(struct run *r, enum status st);

#endif
