/* Figures of a run as data lines among the lines that it prints, for the dashboard that has started it (cli/dashboard.h). */
#ifndef LTRAIN_TRAIN_LIVE_H
#define LTRAIN_TRAIN_LIVE_H

#include "train/metrics.h"
#include "train/run.h"

#define LIVE_VARIABLE "LTRAIN_DASHBOARD" /* environment variable that a dashboard sets for the processes that it starts */
#define LIVE_MARK '\x1e'                 /* first byte of a data line, a JSON object (RFC 7464) */

/* Tells whether a dashboard reads what this process prints. */
int live_is_read(void);
/* Prints the run's model, directory, memory and plan as {"run": {...}}, if a dashboard reads. */
void live_print_run(const struct run *r);
/* Prints a step as {"step": {...}}: its object of metrics.jsonl, with `steps`, `eta_seconds` and `busy` (seconds by lane). */
void live_print_step(const struct step_metrics *m);

#endif
