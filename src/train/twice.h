/* Computing a step a second time and comparing its gradients, to find silent corruption (--verify-every). Private to this folder. */
#ifndef LTRAIN_TRAIN_TWICE_H
#define LTRAIN_TRAIN_TWICE_H

#include "train/run.h"

/* Tells whether the next step is computed twice. */
int twice_is_due(const struct run *r);
/* Computes the step's loss and gradients again from the same state. *loss: sum over its tokens; *cut: a signal ended it. All ranks
 * call it. */
typedef enum status twice_computer(void *user, double *loss, int *cut);
/* Compares loss, norm and gradients of the step just computed, whose update is not done yet, with those of a second computation.
 * ERR_CORRUPT: bits differ; the sentence names tensor and rows, and says with which of both a third computation agrees. All ranks
 * call it. */
enum status twice_compare(struct run *r, double loss, twice_computer *again, void *user, int *cut);

#endif
