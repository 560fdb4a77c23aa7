/* The last step's metrics as a text file for Prometheus' node_exporter. Private to src/train. */
#ifndef LTRAIN_TRAIN_METRICS_FILE_H
#define LTRAIN_TRAIN_METRICS_FILE_H

#include "train/metrics.h"

struct metrics_file; /* opaque */

/* Writes the file without a step yet, so that a path that cannot be written is refused before the first one. run: directory whose
 * absolute path all samples have as their label. ERR_IO: it cannot be written. */
enum status metrics_file_open(const char *path, const char *run, struct metrics_file **out);
/* Replaces the file by the step's metrics, at most once a second. A failure is reported on the run's stream once, and the next
 * step tries again. NULL is fine. */
void metrics_file_add(struct metrics_file *f, const struct step_metrics *m);
/* Writes a step that came within the last second, and frees. NULL is fine. */
void metrics_file_close(struct metrics_file *f);

#endif
