/* Measured and planned times of a run's instructions, and correcting a machine's rates by the comparison. */
#ifndef LTRAIN_MACHINE_OBSERVED_H
#define LTRAIN_MACHINE_OBSERVED_H

#include "machine/hardware.h"

/* Seconds of n instructions of one kind. */
struct observed_sum {
    double planned, measured; /* planned: by the curves that are corrected */
    int64_t n;
};

enum observed_place { OBSERVED_DEVICE, OBSERVED_HOST, OBSERVED_PLACES }; /* place of an op: compute lane, host lane */

struct observed {
    struct observed_sum gemm[COST_TYPES][GEMM_LAYOUTS];
    struct observed_sum attention[COST_TYPES][2]; /* forward, backward */
    struct observed_sum op[OBSERVED_PLACES][OP_COUNT][COST_TYPES];
    struct observed_sum lane[LANES]; /* busy seconds of lanes other than compute and host */
};

/* Adds an executed instruction of the compute or the host lane. m->widens: mixed products count as fp32. */
void observed_add(struct observed *o, const struct cost_model *m, const struct program *program, const struct instr *in,
                  double measured);
/* Adds the sums of `more` to those of `o`. */
void observed_merge(struct observed *o, const struct observed *more);
/* Corrects the rates from which the plan was made, so that they would have planned the measured times. Rates without measured
 * instructions stay. */
void observed_correct(const struct observed *o, struct hardware *h);

#endif
