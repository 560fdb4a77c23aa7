/* Figures of a plan that people, plan.json and the picture of a step show. */
#ifndef LTRAIN_PLAN_REPORT_FIGURES_H
#define LTRAIN_PLAN_REPORT_FIGURES_H

#include "plan/plan.h"

/* One lane over one step. exposed: seconds for which compute stands still because of the lane. */
struct report_lane {
    int64_t instrs, bytes;
    double busy, exposed;
};

/* State and traffic of experts, which the figures by class contain. held: bytes between programs, by tier. */
struct report_experts {
    int64_t held[TIERS], moved;
    double exposed;
};

/* Figures of one step (all its micro-batches) on one rank, unless said otherwise. If the plan does not fit, of its first program
 * alone. */
struct report {
    struct report_lane lane[LANES]; /* exposed is 0 for compute */
    int64_t moved[CLASSES];         /* bytes, over all lanes but compute and host */
    double waited[LANES][CLASSES];  /* seconds that compute stands still for a class on a lane */
    double exposed[CLASSES];        /* seconds over all lanes; their sum is plan.seconds - lane[LANE_COMPUTE].busy */
    struct report_experts experts;  /* all 0 for a model without experts */
    double compute[OPS_COMPUTED];   /* busy seconds of the compute lane, by class of op */
    int64_t saved;                  /* bytes of activations that the forward pass moves off the device */
    double recomputed;              /* busy seconds of the compute lane that repeat the forward pass */
    int64_t lower_bound[TIERS];     /* most bytes live at one time in any program */
    int64_t serial_bound[TIERS];    /* most bytes live at one time if nothing were fetched ahead */
    double model_flops;             /* FLOPs of a causal model's step on all ranks, without recomputation */
    double hardware_flops;          /* FLOPs of one rank's compute lane, recomputation included */
    double mfu, tokens_per_second;  /* all ranks */
    double hidden;                  /* share of the transfers' seconds behind compute; NaN: nothing moves */
    double written_per_day;         /* bytes to nvme by all ranks */
};

/* Bytes that may be written to a drive before it wears out, as makers rate it: 2 TB for consumers (1.2 PB), and 7.68 TB for
 * servers (one full write a day for 5 years). */
#define REPORT_CONSUMER_DRIVE 1.2e15
#define REPORT_SERVER_DRIVE (7.68e12 * 365 * 5)

/* Computes the figures from the plan's programs. ERR_NOMEM: no memory for an index of the largest program's instructions. */
enum status report_make(const struct plan *p, const struct model *m, struct report *out);

/* Returns the lane with the most exposed seconds, compute excluded. */
enum lane report_slowest_lane(const struct report *r);

/* Counts how many times a step runs each program. */
void report_counts(const struct plan *p, int64_t count[PLAN_PROGRAMS]);

#endif
