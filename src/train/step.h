/* Steps of a run, and how far it has come. */
#ifndef LTRAIN_TRAIN_STEP_H
#define LTRAIN_TRAIN_STEP_H

#include "checkpoint/checkpoint.h"
#include "program/program.h"
#include "settings/settings.h"
#include "train/metrics.h"

struct run;

struct run_progress {
    struct checkpoint_info at;                                /* position of training */
    int resumes;                                              /* 1: the next step is the first after a resume */
    char said[sizeof((struct checkpoint_info *)0)->numerics]; /* numerics key of the last line of metrics.jsonl */
    int pending;                                              /* 1: an update waits for the next forward pass */
    double lr_pending;
    int64_t skipped_in_row;  /* steps in a row, up to now, with a gradient norm that was not finite */
    int signal;              /* signal that all ranks agreed to stop for; 0: none */
    struct thrown_away {     /* parts of a step that was cut short */
        int64_t micro_batch; /* number of the micro-batch, from 1; 0: nothing */
        enum phase phase;    /* phase that compute was in */
    } thrown;
};

/* Runs one optimizer step, with all micro-batches; its update stays pending. *cut: a signal ended the step; r->progress.at is as before,
 * and r->progress.thrown says what was lost. */
enum status run_step(struct run *r, struct step_metrics *m, int *cut);
/* Runs the pending update, if there is one. */
enum status run_flush(struct run *r);
/* Fills in the record that programs read. targets: number of trained tokens of the step; sequence: the run's number of the
 * sequence, by which dropout masks are drawn. */
void run_fill_record(struct run *r, int64_t targets, uint64_t sequence);
/* Tells whether the present run of programs was ended early (comm_is_cut) and this rank owes the others no collective any more,
 * so that nothing of the step is left to run. */
int run_is_over(const struct run *r);

/* Returns the schedule's learning rate of the step with that index; 0 is the first. */
double run_learning_rate(const struct settings *s, int64_t step);

#endif
