/* One program within the limits, at the first prefetch level at which it fits. */
#ifndef LTRAIN_PLAN_SCHEDULE_PREFETCH_H
#define LTRAIN_PLAN_SCHEDULE_PREFETCH_H

#include "machine/cost.h"
#include "plan/lower/program.h"

#include <limits.h>

/* Tells whether all arenas are within the limits. *which: the first tier that is not. */
int fit_within(const int64_t arena[TIERS], const int64_t limit[TIERS], enum tier *which);

/* Prefetch levels count from 0, the longest distance, to FIT_SERIAL. */
#define FIT_LATE 8         /* level that fetches a quarter of a row chunk ahead */
#define FIT_NOT_AHEAD 9    /* level that fetches only what is needed next, while the lanes overlap */
#define FIT_SERIAL INT_MAX /* level without prefetches or overlap: lowering order, one instruction after the other */
/* Share of the planned speed of links that counts as slow. Level 0 takes the memory with which links this slow delay nothing:
 * spare memory is used for this first. */
#define FIT_SLOW 0.8

/* Device bytes that stand for the need of a program that exceeds its tables (PROGRAM_MOST_*). It is not scheduled, its seconds
 * are INFINITY, and fewer pieces may help. */
#define FIT_NOWHERE INT64_MAX

/* Lowers the program of given duties and schedules it at the first level from *level on that fits, with the longest distance; sets
 * *level to it. Memory grows with the distance. If no distance fits, the order is serial, which takes the least memory, even if
 * that does not fit either.
 *
 * last: the last level to try, mostly FIT_SERIAL; a program that does not fit at `last` is not finished and its seconds are
 * INFINITY. slack: as for pack_tier. The caller destroys *out. */
enum status fit_program(const struct model *m, const struct strategy *s, const struct cost_model *cost, int duties,
                        const int64_t limit[TIERS], double slack, int last, int *level, struct io_buffers *io,
                        struct program **out);

/* A lowered program that may be scheduled several times: with other limits, levels and depths of writes. */
struct draft;
enum status draft_create(const struct model *m, const struct strategy *s, const struct cost_model *cost, int duties,
                         struct io_buffers *io, struct draft **out);
void draft_destroy(struct draft *d); /* NULL is fine */
/* Schedules a draft as fit_program schedules its program. s: the draft's strategy, with any prefetch and write depth. */
enum status draft_fit(struct draft *d, const struct strategy *s, const struct cost_model *cost, const int64_t limit[TIERS],
                      double slack, int last, int *level);
/* Returns the draft's program, as it was scheduled last; the draft owns it. */
struct program *draft_program(struct draft *d);

/* Creates an empty program that needs FIT_NOWHERE, in place of a program that is known to exceed its tables. */
enum status fit_nothing(struct program **out);

/* Finds the memory that the program of given duties takes in the serial order, or FIT_NOWHERE. */
enum status fit_serially(const struct model *m, const struct strategy *s, int duties, int64_t arena[TIERS]);

#endif
