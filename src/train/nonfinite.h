/* Naming the gradients of a step that are not finite. Private to src/train. */
#ifndef LTRAIN_TRAIN_NONFINITE_H
#define LTRAIN_TRAIN_NONFINITE_H

#include "base/status.h"

#include <stddef.h>

struct run;

/* Writes "NAME", or "NAME and N other tensors": gradients of the step before that have a NaN or an infinity. The tensor named is the
 * one whose gradient is mostly computed first: the last matrix in the model's order. Empty: none has, or the run is a pipeline. All
 * ranks call it, before another program runs. */
enum status nonfinite_name(struct run *r, char *text, size_t bytes);

#endif
