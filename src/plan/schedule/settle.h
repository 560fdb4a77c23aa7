/* Settling of gradients: reductions over ranks, and the ops on the compute lane that add their results. Compute goes on meanwhile. */
#ifndef LTRAIN_PLAN_SCHEDULE_SETTLE_H
#define LTRAIN_PLAN_SCHEDULE_SETTLE_H

#include "plan/schedule/hazards.h"

/* Part of an instruction in settling. */
enum settling_part {
    SETTLING_NONE,
    SETTLING_REDUCTION, /* sums a group's gradient over all ranks */
    SETTLING_SUM,       /* adds such a sum to the batch's gradient, or its squares to the norm */
};

/* The reductions of a lowered program. */
struct settling {
    uint8_t *part; /* enum settling_part of each instruction; NULL: the program has no reduction */
    /* the program's dependencies and more, which bound memory: the first compute after a unit's reductions waits until all results of
     * the unit before are added */
    struct deps deps;
};

/* Finds the reductions of a program. d: the program's dependencies. The caller frees *out with settling_free. */
enum status settling_find(const struct program *p, const struct deps *d, struct settling *out);
void settling_free(struct settling *s);

#endif
