/* Losses of sequences that are not trained. */
#ifndef LTRAIN_TRAIN_EVALUATE_H
#define LTRAIN_TRAIN_EVALUATE_H

#include "train/sequences.h"

/* Evaluates the held-out sequences with the evaluation program. A pending update is done first. *cut: a signal ended the
 * evaluation, and *out is not set. */
enum status run_evaluate(struct run *r, struct evaluation *out, int *cut);
/* Evaluates n sequences of `source` with the evaluation program. *cut: a signal ended it, and *out covers the sequences that all
 * ranks have done. */
enum status run_evaluate_source(struct run *r, const struct sequence_source *source, int64_t n, struct evaluation *out, int *cut);

#endif
