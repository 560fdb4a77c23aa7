/* metrics.jsonl during a run: lines that cannot be written now are written later. Private to src/train. */
#ifndef LTRAIN_TRAIN_RUN_LOG_H
#define LTRAIN_TRAIN_RUN_LOG_H

#include "train/metrics.h"

struct run_log; /* opaque */

/* Continues the file (append), or begins it anew. ERR_IO: it cannot be opened. */
enum status run_log_open(const char *path, int append, struct run_log **out);
/* Adds a step's line. A line that cannot be written is reported on stdout, kept and written with the next one. ERR_NOMEM only. */
enum status run_log_add(struct run_log *l, const struct step_metrics *m);
/* Makes the lines so far survive a power cut, as far as they are written; a failure is told. NULL is fine. */
void run_log_sync(struct run_log *l);
/* Closes the log without writing waiting lines, as the directory is another run's now. NULL is fine. */
void run_log_abandon(struct run_log *l);
/* Tries once more to write waiting lines, and closes. ERR_IO: the message says how many lines are lost. NULL is fine. */
enum status run_log_close(struct run_log *l);

#endif
