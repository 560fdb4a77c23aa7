/* Losses of sequences that are not trained. Private to src/train. */
#ifndef LTRAIN_TRAIN_EVALUATE_H
#define LTRAIN_TRAIN_EVALUATE_H

#include "train/sequences.h"

/* The held-out sequences' losses, by the evaluation program. What is pending is updated first. *cut: a signal ended it, and there
 * is nothing. */
enum status run_evaluate(struct run *r, struct evaluation *out, int *cut);
/* The same of n sequences of `source`; *cut: of as many of them as all ranks have done. */
enum status run_evaluate_source(struct run *r, const struct sequence_source *source, int64_t n, struct evaluation *out, int *cut);

#endif
