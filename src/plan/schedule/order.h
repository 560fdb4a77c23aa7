/* When each instruction runs: prefetches as late as possible, lifetimes in simulated time. */
#ifndef LTRAIN_PLAN_SCHEDULE_ORDER_H
#define LTRAIN_PLAN_SCHEDULE_ORDER_H

#include "machine/cost.h"

enum schedule_mode {
    SCHEDULE_OVERLAPPED, /* prefetch up to `distance` seconds ahead; lifetimes in simulated time */
    SCHEDULE_SERIAL      /* in lowering order, lifetimes by index: the least memory, the least overlap */
};

/* A lowered program that may be ordered in several ways, one after the other. It must outlive this. */
struct schedule;
enum status schedule_create(struct program *p, struct schedule **out);
void schedule_destroy(struct schedule *s); /* NULL is fine; the program stays as it is */

/* Order, lifetimes, addresses (transients above the persistent ones): what memory the program takes, so that on the machine m
 * nothing waits for memory. Without waits yet. lag:
 * seconds of compute by which write-backs may fall behind before compute is held up for them; INFINITY: any, and prefetches are
 * released however late compute is. limit: bytes there are of each tier (NULL: any); where one is exceeded, packing ends and
 * addresses mean nothing. slack: pack.h. */
enum status schedule_order(struct schedule *s, const struct cost_model *m, enum schedule_mode mode, double distance, double lag,
                           const int64_t *limit, double slack);
/* Waits, and simulated times on the machine m, of the present order: the program is complete, and may not be ordered again. */
enum status schedule_finish(struct schedule *s, const struct cost_model *m);

/* Simulates a complete program on the machine m: its instructions' times are those there. */
enum status schedule_simulate(struct program *p, const struct cost_model *m, double *seconds);

/* The lowered program's addresses in the serial order, without a schedule: what memory it takes at least. It stays without waits.
 */
enum status schedule_pack_serially(struct program *p);

/* All of this for one order, with any lag. */
enum status schedule_program(struct program *p, const struct cost_model *m, enum schedule_mode mode, double distance);

#endif
