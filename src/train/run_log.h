/* metrics.jsonl during a run: lines that cannot be written now are written later. Private to src/train. */
#ifndef LTRAIN_TRAIN_RUN_LOG_H
#define LTRAIN_TRAIN_RUN_LOG_H

#include "train/metrics.h"

struct run_log; /* opaque */

/* Continues the file (append), or begins it anew. every: steps from one line to the next. ERR_IO: it cannot be opened. */
enum status run_log_open(const char *path, int append, int64_t every, struct run_log **out);
/* Tells whether a step gets a line at once: each `every`-th one, the last one, and those with more to say than numbers. */
int run_log_is_due(const struct run_log *l, const struct step_metrics *m);
/* Adds a step's line, or the step to the sums of the next line. A line that cannot be written is reported on stdout, kept and written with the next one. ERR_NOMEM only. */
enum status run_log_add(struct run_log *l, const struct step_metrics *m);
/* Adds the line of the last step if it has none, and makes the lines so far survive a power cut, as far as they are written; a failure is told. NULL is fine. */
void run_log_sync(struct run_log *l);
/* Closes the log without writing waiting lines, as the directory is another run's now. NULL is fine. */
void run_log_abandon(struct run_log *l);
/* Tries once more to write waiting lines, and closes. ERR_IO: the message says how many lines are lost. NULL is fine. */
enum status run_log_close(struct run_log *l);

#endif
