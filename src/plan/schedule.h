/* When each instruction runs: prefetches as late as possible, lifetimes in simulated time. */
#ifndef LTRAIN_PLAN_SCHEDULE_H
#define LTRAIN_PLAN_SCHEDULE_H

#include "program/cost.h"

enum schedule_mode {
    SCHEDULE_OVERLAPPED, /* prefetch up to `distance` seconds ahead; lifetimes in simulated time */
    SCHEDULE_SERIAL      /* in lowering order, lifetimes by index: the least memory, the least overlap */
};

/* Takes a freshly lowered program to a complete one: order, lifetimes, addresses (transients above the persistent ones), waits,
 * simulated times. */
enum status schedule_program(struct program *p, const struct cost_model *m, enum schedule_mode mode, double distance);

#endif
