/* metrics.jsonl of a run, summed up in a bounded number of points. Private to src/report. */
#ifndef LTRAIN_REPORT_HISTORY_H
#define LTRAIN_REPORT_HISTORY_H

#include "base/status.h"

#include <jansson.h>

/* Points of a curve at most; each stands for equally many steps. */
enum { HISTORY_POINTS = 1024 };

struct history; /* opaque */

/* Reads a log of any length in about 2 MiB. Damaged lines are counted. ERR_INVALID, ERR_IO: it cannot be read. */
enum status history_read(const char *path, struct history **out);
void history_free(struct history *h);
/* Makes the object that view/sections.js draws: totals, curves, evaluations, events. To be freed by json_decref; NULL: no memory. */
json_t *history_json(const struct history *h);

#endif
