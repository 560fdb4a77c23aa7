/* Hazards on bytes become dependencies; dependencies become the fewest waits. */
#ifndef LTRAIN_PLAN_SCHEDULE_HAZARDS_H
#define LTRAIN_PLAN_SCHEDULE_HAZARDS_H

#include "program/program.h"

/* Dependencies of each instruction on earlier ones, compressed rows: dep[first[i] .. first[i+1]-1], indices below i, each once.
 */
struct deps {
    int *first, *dep;
};

/* Read-after-write, write-after-read and write-after-write, in program order; every buffer has bytes of its own. Free with
 * hazards_free. */
enum status hazards_find(const struct program *p, struct deps *out);
void hazards_free(struct deps *d);

/* The dependencies of the same n instructions in another order, which follows them: order[i] was the place of the i-th. */
enum status hazards_reorder(const struct deps *d, const int *order, int n, struct deps *out);

/* Sets the waits of every instruction, from the hazards on addresses: per other lane the latest ticket it depends on, without
 * those that its lane or another wait already implies (vector clocks; the result is irredundant). Needs tickets
 * (program_number). */
enum status hazards_set_waits(struct program *p);

/* The waits as dependencies, for the simulator. */
enum status hazards_from_waits(const struct program *p, struct deps *out);

#endif
