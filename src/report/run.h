/* One run's part of a report. Private to src/report. */
#ifndef LTRAIN_REPORT_RUN_H
#define LTRAIN_REPORT_RUN_H

#include "base/status.h"

#include <jansson.h>

enum { REPORT_PATH = 4096 };

/* Reads a run's directory: metrics.jsonl, and card.json, plan.json, config.yaml, checkpoints, traces where they are.
 * *out: to be freed by json_decref. ERR_INVALID: it is no run's directory. */
enum status report_run(const char *directory, json_t **out);
/* Reads a trace of a run's step into {"lanes": ..., "waits": ...}. *out NULL: the file is no trace. */
enum status report_trace(const char *path, json_t **out);
/* Reads the output of `ltrain eval --json` into scores by task, length and depth. ERR_INVALID: the file is no such output. */
enum status report_scores(const char *path, json_t **out);

#endif
