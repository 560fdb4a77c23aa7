/* The end of a job's time: a run saves before the scheduler kills it. */
#ifndef LTRAIN_TRAIN_WALLTIME_H
#define LTRAIN_TRAIN_WALLTIME_H

#include "base/status.h"

#include <signal.h>
#include <stdint.h>

/* Signal by which the walltime's end stops a run, as SIGTERM does; and the exit status, by which job scripts know it (EX_TEMPFAIL). */
#define WALLTIME_SIGNAL SIGALRM
enum { WALLTIME_EXIT = 75 };

struct walltime {
    double end;   /* second of the monotonic clock at which the job ends; infinite: never */
    double total; /* seconds from the start of the run to that */
    double save;  /* seconds that a save takes: measured, or assumed at first */
    double step;  /* longest of the last steps, with its evaluation, in seconds */
    double begun; /* start of the present step */
};

/* Reads --walltime: 8h, 90m, 30s, 1h30m, [D-]HH:MM:SS or MM:SS from now on; auto: SLURM_JOB_END_TIME, if it is set; none. ERR_INVALID:
 * another text, or less than a second. */
enum status walltime_begin(const char *text, struct walltime *out);
/* Assumes how long a checkpoint of that many bytes takes, until one is measured. */
void walltime_expect(struct walltime *w, int64_t bytes);
/* Raises WALLTIME_SIGNAL if the next step may not end in time to be saved; otherwise sets a timer that cuts a step which lasts
 * longer than expected. One rank calls it between steps. */
void walltime_before_step(struct walltime *w);
/* Notes that a step, or a save, has ended. */
void walltime_after_step(struct walltime *w);
void walltime_after_save(struct walltime *w, double seconds);
/* Stops the timer: only the last save is left. */
void walltime_over(const struct walltime *w);
/* Prints the line about the walltime; none without one. */
void walltime_print(const struct walltime *w);

#endif
