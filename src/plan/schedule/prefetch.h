/* One program within the limits: how far ahead it may fetch. */
#ifndef LTRAIN_PLAN_SCHEDULE_PREFETCH_H
#define LTRAIN_PLAN_SCHEDULE_PREFETCH_H

#include "machine/cost.h"
#include "plan/lower/program.h"

#include <limits.h>

/* Whether all arenas are within the limits; *which: the first tier that is not. */
int fit_within(const int64_t arena[TIERS], const int64_t limit[TIERS], enum tier *which);

#define FIT_LATE 8         /* the pace that fetches a quarter of a row chunk ahead */
#define FIT_NOT_AHEAD 9    /* the pace that fetches what is needed next, while the lanes overlap */
#define FIT_SERIAL INT_MAX /* a pace below all others */
#define FIT_SLOW 0.8       /* of the planned speed of links: spare memory is spent on that first */

/* Lowers the program of a role and schedules it with the longest prefetch distance that fits: found by bisection (memory grows
 * with the distance) from *pace on, a number from 0 (the longest, with memory in which links slower by FIT_SLOW find room, too)
 * that is set to what was found. Serially, which takes the least memory, if no distance fits, or if that does not fit either.
 * last: the last pace that is looked at, mostly FIT_SERIAL; what does not fit there is not finished, its seconds are INFINITY.
 * slack: by how much packing may exceed what lives at once (pack.h). The caller destroys *out. */
enum status fit_program(const struct model *m, const struct strategy *s, const struct cost_model *cost, int role,
                        const int64_t limit[TIERS], double slack, int last, int *pace, struct io_buffers *io,
                        struct program **out);

/* What it takes serially. */
enum status fit_serially(const struct model *m, const struct strategy *s, int role, int64_t arena[TIERS]);

#endif
