/* The fewest waits, from hazards on addresses. */
#ifndef LTRAIN_PLAN_SCHEDULE_WAITS_H
#define LTRAIN_PLAN_SCHEDULE_WAITS_H

#include "plan/schedule/hazards.h"

/* Sets the waits of every instruction of a packed program: for each other lane the latest ticket it depends on, unless its own
 * lane or another of its waits implies that one (vector clocks; no wait is redundant). Needs tickets (program_number). */
enum status waits_set(struct program *p);

/* Converts the waits to dependencies, for the simulator. */
enum status waits_as_deps(const struct program *p, struct deps *out);

#endif
