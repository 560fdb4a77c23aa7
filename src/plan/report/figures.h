/* The figures of a plan: what people, plan.json and the picture of a step show. */
#ifndef LTRAIN_PLAN_REPORT_FIGURES_H
#define LTRAIN_PLAN_REPORT_FIGURES_H

#include "plan/plan.h"

/* One lane over one step. Exposed: seconds during which compute stands still because of it. */
struct report_lane {
    int64_t instrs, bytes;
    double busy, exposed;
};

/* Of one step (all its micro-batches) and one rank, unless said otherwise. If the plan does not fit, from its first program
 * alone. */
struct report {
    struct report_lane lane[LANES]; /* of compute, exposed is 0 */
    int64_t moved[CLASSES];         /* bytes, over all lanes but compute and host */
    double waited[LANES][CLASSES];  /* seconds that compute stands still for a class on a lane */
    double exposed[CLASSES];        /* over all lanes; in all it is plan.seconds - lane[LANE_COMPUTE].busy */
    double compute[OPS_COMPUTED];   /* busy seconds of the compute lane, by class of op */
    int64_t saved;                  /* bytes of activations that the forward pass moves off the device */
    double recomputed;              /* busy seconds of the compute lane that repeat the forward pass */
    int64_t lower_bound[TIERS];     /* bytes live at once, the most of any program */
    int64_t serial_bound[TIERS];    /* the same if nothing were fetched ahead */
    double model_flops;             /* of all ranks; causal, without recompute */
    double hardware_flops;          /* of one rank's compute lane, recompute included */
    double mfu, tokens_per_second;  /* of all ranks */
    double hidden;                  /* share of the transfers' seconds behind compute; NaN: nothing moves */
    double written_per_day;         /* bytes to nvme by all ranks */
};

/* Bytes that a drive may be written before it wears out, as makers rate it: 2 TB for consumers (1.2 PB), and 7.68 TB for servers
 * (one full write a day for 5 years). */
#define REPORT_CONSUMER_DRIVE 1.2e15
#define REPORT_SERVER_DRIVE (7.68e12 * 365 * 5)

/* Reads the figures off the plan's programs. ERR_NOMEM: there is no memory for an index of the largest one. */
enum status report_make(const struct plan *p, const struct model *m, struct report *out);

/* The lane but compute with the most exposed seconds. */
enum lane report_slowest_lane(const struct report *r);


/* How many times a step runs each program. */
void report_counts(const struct plan *p, int64_t count[PLAN_PROGRAMS]);

#endif
