/* Event files for TensorBoard: every number of metrics.jsonl as a scalar. Private to src/train. */
#ifndef LTRAIN_TRAIN_BOARD_H
#define LTRAIN_TRAIN_BOARD_H

#include "train/metrics.h"

struct board; /* opaque */

/* Begins a new file in RUN/tensorboard; TensorBoard forgets what earlier files have of steps after `step`. ERR_IO: it cannot be
 * written. */
enum status board_open(const char *run, int64_t step, struct board **out);
/* Adds a step. A file that cannot be written is reported on stdout, once, and nothing is added any more. NULL is fine. */
void board_add(struct board *b, const struct step_metrics *m);
void board_close(struct board *b); /* NULL is fine */

#endif
