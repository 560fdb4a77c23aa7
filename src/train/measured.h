/* Measured figures of the steps here. */
#ifndef LTRAIN_TRAIN_MEASURED_H
#define LTRAIN_TRAIN_MEASURED_H

#include "comm/comm.h"
#include "engine/executor.h"
#include "machine/observed.h"
#include "train/metrics.h"

struct run;

struct run_measured {
    double peak_flops;        /* sum over all ranks */
    char peak_reference[128]; /* source of peak_flops */
    /* Sums over the steps that began with an optimizer update, as the planned step does; sums over all steps until there is such
     * a step. */
    struct {
        struct lane_stats lanes[LANES];
        struct observed seen; /* instructions of compute and host */
        double seconds;
        int64_t steps;
        int updated;
    } alike;
    struct observed step;            /* instructions of the present step */
    struct comm_traffic sent[LANES]; /* traffic of all ranks on comm lanes */
    int64_t steps;                   /* steps made since this start */
    double seconds, planned_seconds; /* sums over these steps, measured and planned */
    int64_t verified;                /* number of these steps that were computed twice, with the same bits */
    struct spikes spikes;            /* loss and norm of the steps before, of earlier starts, too (rank 0) */
    int64_t skipped, empty;          /* numbers of these steps: skipped for a norm that was not finite; without a target token */
};

/* Finds r->measured.peak_flops of all ranks and its source: a GPU's data sheet or else a measured product, and for a CPU its sgemm. */
enum status run_find_peak(struct run *r);
/* Takes the statistics of the step that was just made, adds them to the run's sums, and completes *m. All ranks call it. */
enum status run_finish_metrics(struct run *r, struct step_metrics *m);

#endif
