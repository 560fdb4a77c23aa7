/* Metrics of a step: a line for people and an object in metrics.jsonl. Private to src/train. */
#ifndef LTRAIN_TRAIN_METRICS_H
#define LTRAIN_TRAIN_METRICS_H

#include "engine/executor.h"
#include "offload/store.h"
#include "settings/settings.h"
#include "train/evaluation.h"
#include "train/expert_stats.h"
#include "train/spikes.h"

#include <jansson.h>
#include <stdio.h>

/* Sums over steps. */
struct step_sums {
    int64_t steps, tokens, target_tokens, read_bytes, written_bytes;
    double model_flops, stall_seconds, planned_seconds, submit_cpu_seconds;
    struct comm_traffic sent;
    double stalled[LANES][CLASSES];
};

struct step_metrics {
    int64_t step, steps, seq_len, tokens, target_tokens;          /* seq_len: tokens of a sequence */
    double loss, grad_norm, lr, seconds, model_flops, peak_flops; /* peak_flops: FLOP/s that MFU refers to */
    const char *peak_reference;                                   /* source of peak_flops */
    struct expert_stats experts;                                  /* experts: 0: the model has none */
    struct evaluation eval;                                       /* valid if `evaluated` */
    int evaluated;
    int resumed;                     /* 1: the first step after a resume */
    const char *numerics;            /* numerics key, where it begins to hold; NULL: that of the line before */
    const struct settings *settings; /* settings of the updates, where `numerics` is set */
    int verified;                    /* 1: the step was computed twice */
    int updated;                     /* 1: the step began with the update of the step before */
    const char *skipped;             /* reason why the step changed nothing; NULL: it was not skipped */
    int64_t device_bytes, device_limit, host_bytes, nvme_bytes;
    int64_t read_bytes, written_bytes;     /* sum over all ranks */
    struct comm_traffic sent;              /* sum over all ranks */
    double hidden;                         /* share of transfer time behind compute; NaN: next to nothing moved */
    double stall_seconds, planned_seconds; /* seconds without compute; planned seconds of the whole step */
    double stalled[LANES][CLASSES];        /* this rank's seconds without compute, by the lane and the class waited for */
    double busy[LANES];                    /* this rank's seconds of work, by lane */
    struct lane_submission submission;     /* submissions to this rank's GPU; zero: no GPU */
    double loss_above, norm_above;         /* standard deviations above the mean of the steps before; NaN: unknown */
    double eta_seconds;
    struct step_sums before; /* sums of the steps before that have no line (--log-every) */
};

/* Returns the share of the transfers' time that is hidden behind compute, from the lanes' statistics of a step of `seconds`; NaN:
 * next to nothing moved. */
double metrics_hidden(const struct lane_stats lanes[LANES], double seconds);
/* Prints the line of a step; a terminal's line is rewritten in place. */
void metrics_print(const struct step_metrics *m, FILE *f, int terminal);
/* Prints only what a step has besides its figures: an evaluation, spikes, the reason why it was skipped. terminal: 1: the step's
 * line stands unfinished on a terminal. */
void metrics_print_events(const struct step_metrics *m, FILE *f, int terminal);
/* Prints the line of an evaluation, with NaN and infinities, too. */
void metrics_print_evaluation(const struct step_metrics *m, FILE *f);
/* Adds a step that gets no line, with what it has of the steps before it, to the sums. */
void metrics_sum(struct step_sums *to, const struct step_metrics *m);
/* Makes the object of a line; to be freed by json_decref; NULL: no memory. */
json_t *metrics_object(const struct step_metrics *m);
/* Appends one line; that of step 0 (before the first) has the evaluation only. Floats read back exactly; null stands for NaN and
 * infinities. */
enum status metrics_append(const struct step_metrics *m, FILE *f);
/* Removes the lines of steps after `step`, and one that was cut off: a killed run may have gone further than its last checkpoint.
 * kept: gets loss and norm of the steps whose lines stay. *last: the last step with a line, or `step` if that is later. A missing
 * file has no lines. */
enum status metrics_cut(const char *path, int64_t step, struct spikes *kept, int64_t *last);
/* Chrome trace of one or more programs. Each instruction has the time at which all its needs were met (`ready`, in us as `ts`), and the
 * one met last (`released_by`); instructions are numbered through all programs. */
struct trace_file {
    FILE *f;
    int64_t instrs; /* number of instructions that were written */
};
enum status metrics_trace_begin(const char *path, struct trace_file *out);
/* Adds the lanes of a program that began at_ns after the first one. ERR_NOMEM */
enum status metrics_trace_add(struct trace_file *t, const struct program *p, const struct trace_event *events, int64_t at_ns);
enum status metrics_trace_end(struct trace_file *t, const char *path);

#endif
