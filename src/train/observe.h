/* Times that a run's instructions took, left for later plans. Private to src/train. */
#ifndef LTRAIN_TRAIN_OBSERVE_H
#define LTRAIN_TRAIN_OBSERVE_H

#include "base/status.h"

struct run;

#define OBSERVED_FILE "observed.yaml" /* in the run's directory */

/* Adds the program that has just run to the step's times; programs in chaos mode and cut ones are left out. */
void observe_program(struct run *r);
/* Writes the machine's rates, corrected by the run's times, to RUN/observed.yaml and to where --observed auto finds them. Rank 0
 * calls it; a failure is reported on the run's stream. */
void observe_write(struct run *r);

#endif
