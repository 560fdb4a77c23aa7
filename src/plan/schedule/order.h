/* Scheduling: from a lowered program to a complete one by order, lifetimes, addresses and waits (order.c lists the passes). */
#ifndef LTRAIN_PLAN_SCHEDULE_ORDER_H
#define LTRAIN_PLAN_SCHEDULE_ORDER_H

#include "machine/cost.h"

enum schedule_mode {
    SCHEDULE_OVERLAPPED, /* prefetch up to `distance` seconds ahead; lifetimes in simulated time */
    SCHEDULE_SETTLED, /* like SCHEDULE_OVERLAPPED, but compute waits for a unit's reduced gradients before it goes on: less memory */
    SCHEDULE_SERIAL /* in lowering order, lifetimes by index: the least memory, the least overlap */
};

/* A lowered program that may be ordered in several ways, one after the other. The program must outlive its schedule. */
struct schedule;
enum status schedule_create(struct program *p, struct schedule **out);
void schedule_destroy(struct schedule *s); /* NULL is fine; the program stays as it is */

/* Sets order, lifetimes and addresses, without waits yet; with the memory found, no instruction waits for memory on the machine
 * m. distance: seconds of compute by which prefetches may run ahead. slack: as for pack_tier.
 *
 * lag: seconds of compute by which write-backs may be late before compute waits for them; INFINITY: no limit, and late compute
 * delays no prefetch. limit: bytes of each tier (NULL: none); if one is exceeded, packing ends and addresses mean nothing. */
enum status schedule_order(struct schedule *s, const struct cost_model *m, enum schedule_mode mode, double distance, double lag,
                           const int64_t *limit, double slack);
/* Sets waits and simulated times of the present order on the machine m. The program is then complete. */
enum status schedule_complete(struct schedule *s, const struct cost_model *m);
/* Completes the program as schedule_complete does, with less memory. The program may not be ordered again. */
enum status schedule_finish(struct schedule *s, const struct cost_model *m);

/* Simulates a complete program on the machine m: sets its instructions' times, and *seconds to the end of the last. */
enum status schedule_simulate(struct program *p, const struct cost_model *m, double *seconds);

/* Sets lifetimes and addresses of the lowered program in the serial order, without a schedule or waits: the least memory it
 * takes. */
enum status schedule_pack_serially(struct program *p);

#endif
