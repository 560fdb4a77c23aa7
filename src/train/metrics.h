/* What a step was like: one line for people, one object in metrics.jsonl. Private to src/train. */
#ifndef LTRAIN_TRAIN_METRICS_H
#define LTRAIN_TRAIN_METRICS_H

#include "engine/executor.h"
#include "offload/store.h"
#include "train/evaluation.h"

#include <stdio.h>

struct step_metrics {
    int64_t step, steps, seq_len, tokens, target_tokens; /* seq_len: of a sequence */
    double loss, grad_norm, lr, seconds, model_flops, peak_flops; /* peak_flops: the rate MFU refers to */
    const char *peak_reference;                                   /* what that rate is */
    struct evaluation eval;                                       /* if evaluated */
    int evaluated;
    int updated;         /* it began with the update of the step before */
    const char *skipped; /* why the step changed nothing; NULL: it did not skip */
    int64_t device_bytes, device_limit, host_bytes, nvme_bytes;
    int64_t read_bytes, written_bytes;     /* by all ranks */
    struct comm_traffic sent;              /* by all ranks */
    double hidden;                         /* share of transfer time behind compute; NaN: next to nothing moved */
    double stall_seconds, planned_seconds; /* compute stood still; of the whole step, as planned */
    double stalled[LANES][CLASSES];        /* seconds that compute stood still for a class on a lane, of this rank */
    struct lane_submission submission;     /* of this rank's GPU; zero: no GPU */
    double eta_seconds;
};

/* Share of the transfers' time behind compute, from the lanes' statistics of a step that took `seconds`; NaN: next to nothing moved. */
double metrics_hidden(const struct lane_stats lanes[LANES], double seconds);
/* Rewritten in place on a terminal. */
void metrics_print(const struct step_metrics *m, FILE *f, int terminal);
/* The line of what was evaluated; what is not finite is shown, too. */
void metrics_print_evaluation(const struct step_metrics *m, FILE *f);
/* Appends one line, of step 0 (before the first one) with what was evaluated alone; floats read back exactly, what is not finite is null. */
enum status metrics_append(const struct step_metrics *m, FILE *f);
/* Removes the lines of steps after `step`, and one that was cut off: a run that was killed had gone further than its last
 * checkpoint. *last: the last step that had one; `step` if that is later. A file that does not exist has none. */
enum status metrics_cut(const char *path, int64_t step, int64_t *last);
/* Lanes of one program as a Chrome trace; each instruction says when all that it needed was there (`ready`, in us as `ts`), and
 * what came last of it (`released_by`). */
enum status metrics_write_trace(const char *path, const struct program *p, const struct trace_event *events);

#endif
