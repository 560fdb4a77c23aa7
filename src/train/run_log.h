/* metrics.jsonl while a run lasts: what cannot be written now is written later. Private to src/train. */
#ifndef LTRAIN_TRAIN_RUN_LOG_H
#define LTRAIN_TRAIN_RUN_LOG_H

#include "train/metrics.h"

struct run_log; /* opaque */

/* Continues the file (append), or begins it anew. ERR_IO: it cannot be opened. */
enum status run_log_open(const char *path, int append, struct run_log **out);
/* Adds a step's line. A line that cannot be written is said on stdout, kept and written with the next one. ERR_NOMEM only. */
enum status run_log_add(struct run_log *l, const struct step_metrics *m);
/* Of a directory that is another run's now: what waits is not written. NULL is fine. */
void run_log_abandon(struct run_log *l);
/* Tries once more, and closes. ERR_IO: the sentence says how many lines are lost. NULL is fine. */
enum status run_log_close(struct run_log *l);

#endif
